"""Networks, checkpoints and tensors of the scorers that run models; imported by their constructors."""
