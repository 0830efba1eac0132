"""The parts of the model as Keras layers: character CNN, clipped projected LSTM, softmax, scalar mix."""
