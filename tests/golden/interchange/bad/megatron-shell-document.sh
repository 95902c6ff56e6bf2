cat <<'RUN' > run.sh
torchrun pretrain_gpt.py --num-layers 4 --hidden-size 64
RUN
sbatch run.sh
