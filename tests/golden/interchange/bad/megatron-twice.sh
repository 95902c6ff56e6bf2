pretrain_gpt.py --num-layers 4 \
  --hidden-size 64 --num-layers 8
