#!/bin/bash
LAYERS=32
if [ "$HOSTNAME" = big ]; then
  LAYERS=80
  FP8=(--fp8-format hybrid)
fi
torchrun pretrain_gpt.py --num-layers $LAYERS --hidden-size 4096 --num-attention-heads 32 ${FP8[@]} --bf16
