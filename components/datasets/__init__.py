"""Episodes as training data: SFT, DPO and GRPO in TRL's formats, from one set of trajectories and one split."""
