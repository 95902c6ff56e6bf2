pretrain_gpt.py --num-layers 2 --hidden-size 8 --num-attention-heads 2 --lr 1e-3 --lr-decay-style inverse-square-root --lr-warmup-fraction 0.1 --train-samples 100 --optimizer muon
