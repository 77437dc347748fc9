"""Attribution by gradients of the loss."""
