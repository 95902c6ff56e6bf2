# A mixture whose documents are apart, a split with decimals, evaluation.
torchrun --nproc-per-node 4 pretrain_gpt.py \
  --num-layers 4 --hidden-size 256 --num-attention-heads 4 --vocab-size 50257 \
  --max-position-embeddings 512 --seq-length 512 --micro-batch-size 2 --global-batch-size 16 \
  --train-iters 100 --seed 42 --data-path 0.3 "data/the wiki_text_document" 0.7 code_text_document \
  --split 98.5,1,0.5 --eval-interval 20 --eval-iters 4 \
  --reset-position-ids --reset-attention-mask --eod-mask-loss
