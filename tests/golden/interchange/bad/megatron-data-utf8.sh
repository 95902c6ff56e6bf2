pretrain_gpt.py --num-layers 2 --hidden-size 8 --num-attention-heads 2 --vocab-size 64 --data-path data/cÿde
