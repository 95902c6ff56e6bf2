from sagemaker.train.distributed import SMP, Torchrun

distributed = Torchrun(
    process_count_per_node=8,
    smp=SMP(
        hybrid_shard_degree=16,
        tensor_parallel_degree=1,
        context_parallel_degree=2,
        sm_activation_offloading=False,
        activation_loading_horizon=2,
        random_seed=1234,
    ),
)
