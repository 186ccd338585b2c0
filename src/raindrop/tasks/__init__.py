"""What is predicted: targets, losses, predictions, metrics and how sure they are."""
