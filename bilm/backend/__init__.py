"""The code that differs between Keras's backends: LSTM loops, compilation and devices."""
