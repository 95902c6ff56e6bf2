# Llama 3.1's frequencies, a window, and an exact GELU.
torchrun --nproc-per-node 8 pretrain_gpt.py \
  --num-layers 16 --hidden-size 2048 --num-attention-heads 32 --vocab-size 128256 \
  --max-position-embeddings 131072 --position-embedding-type rope --rotary-base 500000 \
  --rotary-percent 0.5 --use-rope-scaling --rope-scaling-factor 32 --window-size '(4095,0)' \
  --no-bias-gelu-fusion --seq-length 8192 --micro-batch-size 1 --global-batch-size 8 --bf16
