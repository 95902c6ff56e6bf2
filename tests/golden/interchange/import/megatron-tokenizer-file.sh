torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 12 --hidden-size 768 \
  --num-attention-heads 12 --max-position-embeddings 1024 --seq-length 1024 --micro-batch-size 4 \
  --global-batch-size 32 --bf16 --vocab-file data/gpt2-vocab.json
