if [ $X = 1 ]; then
  LAYERS=4
done
torchrun pretrain_gpt.py --num-layers $LAYERS
