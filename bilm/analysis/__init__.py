"""Looking at what there is: descriptions of models, training curves, nearest neighbours, pictures."""
