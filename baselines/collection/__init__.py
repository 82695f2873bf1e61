"""Collection of training episodes: the actor, model servers, game sampling and open environments."""
