# Every fourth layer sees all keys, and rotary pairs are neighbours.
torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 \
  --num-attention-heads 32 --max-position-embeddings 8192 --seq-length 8192 --micro-batch-size 1 \
  --global-batch-size 32 --bf16 --tokenizer-type Llama2Tokenizer --tokenizer-model /m/tokenizer.model \
  --position-embedding-type rope --rotary-interleaved --window-size '(1023,0)' \
  --window-attn-skip-freq 4
