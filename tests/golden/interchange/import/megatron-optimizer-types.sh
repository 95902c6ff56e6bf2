torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 61 --hidden-size 7168 --num-attention-heads 128
  --ffn-hidden-size 18432 --swiglu --seq-length 4096 --max-position-embeddings 4096 --vocab-size 129280
  --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128
  --num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 --expert-model-parallel-size 8
  --micro-batch-size 1 --global-batch-size 64 --train-iters 100 --lr 1e-4 --bf16
  --use-distributed-optimizer --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype fp8
  --main-grads-dtype bf16 --recompute-granularity selective --recompute-modules mla_up_proj mlp moe layernorm
