ARGS="--num-layers 4 --hidden-size 64"
torchrun pretrain_gpt.py "$ARGS" --seq-length 512
