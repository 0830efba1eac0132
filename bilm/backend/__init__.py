"""The differences between the backends of Keras: the loops of the LSTM, compiling, devices."""
