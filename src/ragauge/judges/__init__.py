"""Judging of samples by a model or by word overlap: prompts, replies, reply cache and costs."""
