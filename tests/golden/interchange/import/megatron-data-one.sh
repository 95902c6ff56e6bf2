# One prefix, its default split, evaluation by default steps.
torchrun --nproc-per-node 4 pretrain_gpt.py \
  --num-layers 4 --hidden-size 256 --num-attention-heads 4 --vocab-size 50257 \
  --max-position-embeddings 512 --seq-length 512 --micro-batch-size 2 --eval-interval 20 \
  --data-path corpus_text_document --reset-position-ids --reset-attention-mask
