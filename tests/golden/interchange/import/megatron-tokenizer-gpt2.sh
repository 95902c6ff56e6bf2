# The size of the vocabulary is GPT-2's, wherever its file is.
torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 12 --hidden-size 768 \
  --num-attention-heads 12 --max-position-embeddings 1024 --seq-length 1024 --micro-batch-size 4 \
  --global-batch-size 32 --bf16 --tokenizer-type GPT2BPETokenizer --vocab-file $VOCAB_FILE \
  --merge-file $MERGE_FILE --expert-tensor-parallel-size 1
