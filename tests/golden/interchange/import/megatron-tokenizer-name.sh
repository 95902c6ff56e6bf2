torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 28 --hidden-size 3584 \
  --num-attention-heads 28 --max-position-embeddings 4096 --seq-length 4096 --micro-batch-size 1 \
  --global-batch-size 32 --bf16 --tokenizer-type HuggingFaceTokenizer \
  --tokenizer-model Qwen/Qwen2.5-7B-Instruct
