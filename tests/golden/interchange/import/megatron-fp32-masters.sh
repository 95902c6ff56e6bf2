torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 \
  --seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 4 --global-batch-size 64 \
  --train-iters 100 --lr 1e-4 --bf16 --fp8-format hybrid --fp8-recipe tensorwise --use-distributed-optimizer \
  --use-precision-aware-optimizer --exp-avg-dtype bf16
