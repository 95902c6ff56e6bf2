MODE=dry
if [ $MODE = dry ]; then
  exit 0
fi
torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64
