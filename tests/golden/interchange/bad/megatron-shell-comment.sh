torchrun pretrain_gpt.py \
  --num-layers 4 --hidden-size 64 \
  # --fp16 \
  --bf16
