"""The Keras layers of the model: character CNN, clipped projected LSTM, softmax, scalar mix."""
