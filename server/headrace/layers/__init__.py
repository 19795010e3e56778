"""Layers of decoders, named for how they are split over ranks; models are written on top of them."""
