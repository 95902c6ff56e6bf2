# Data to train on and to evaluate on that lie apart; a test set is not used.
torchrun --nproc-per-node 4 pretrain_gpt.py \
  --num-layers 4 --hidden-size 256 --num-attention-heads 4 --vocab-size 50257 \
  --max-position-embeddings 512 --seq-length 512 --micro-batch-size 2 --global-batch-size 16 \
  --train-data-path 1 a 3 b --valid-data-path c --test-data-path d
