pretrain_gpt.py --num-layers 2 --hidden-size 8 --num-attention-heads 2 --vocab-size 64 --train-data-path a --valid-data-path 1 b 2 c --eval-interval 10
