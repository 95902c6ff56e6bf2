COMMON="--num-layers 4 --hidden-size 64"
torchrun pretrain_gpt.py $COMMON --seq-length 512
torchrun pretrain_gpt.py $COMMON --seq-length 1024
