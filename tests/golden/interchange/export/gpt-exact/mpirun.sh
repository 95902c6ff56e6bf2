mpirun -np 4 --map-by ppr:4:node --bind-to none -x MASTER_ADDR=localhost -x MASTER_PORT=29500 python train.py
