pretrain_gpt.py --num-layers --hidden-size 64
