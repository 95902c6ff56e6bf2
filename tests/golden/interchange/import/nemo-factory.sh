#!/bin/bash
# NeMo 2's command line
NODES=4
nemo llm pretrain --factory llama3_8b trainer.num_nodes=$NODES \
  trainer.strategy.tensor_model_parallel_size=2 data.global_batch_size=128 \
  optim.config.lr=1e-4 log.ckpt.save_last=true --yes
