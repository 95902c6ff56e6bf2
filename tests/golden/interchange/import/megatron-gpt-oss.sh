torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py \
  --num-layers 24 --hidden-size 2880 --num-attention-heads 64 --group-query-attention --num-query-groups 8 --kv-channels 64 \
  --ffn-hidden-size 2880 --moe-ffn-hidden-size 2880 --num-experts 32 --moe-router-topk 4 --quick-geglu --glu-linear-offset 1.0 \
  --activation-func-clamp-value 7.0 --softmax-type learnable --window-size 127,0 --window-attn-skip-freq 2 \
  --normalization RMSNorm --untie-embeddings-and-output-weights --position-embedding-type rope --rotary-base 150000 \
  --seq-length 4096 --max-position-embeddings 131072 --vocab-size 201088 --micro-batch-size 1 --global-batch-size 32 \
  --train-iters 1000 --bf16
