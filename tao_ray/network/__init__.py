"""A TAO network as its model package describes it."""
