"""Training algorithms, one module each, and what they share.

Each algorithm's module has `Config` and `update(UpdateInput) -> dict`, which learns from one batch
of episodes and returns numbers to log. Shared: `update` (its input), `optimisers`, `policy_step`
(the clipped step), `actor_critic` (PPO and its variants), `groups` (GRPO and its variants) and
`kl`. The folder `turn_credit` holds the group algorithms that
assign credit to single turns.
"""
