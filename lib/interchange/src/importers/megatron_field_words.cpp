#include "importers/megatron_fields.h"

// Fields of Megatron Core, Megatron-LM, Megatron Bridge and NeMo that no plan depends on: kernels,
// initial values, callbacks, logs, checkpoints, and parameters of what the fields in
// megatron_fields() switch on. Sources as in megatron_fields_table.cpp.
namespace smp::importers {
namespace {

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = text.find(' ');
    if (end > 0) out.push_back(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return out;
}

}  // namespace

const std::vector<std::string_view>& megatron_field_words() {
  static const std::vector<std::string_view> kWords = split_words(
      "_cpu_offloading_context _pg_collection _train_iters_from_num_epochs "
      "activation_func_fp8_input_store activation_offload_fraction "
      "add_bos add_eos add_extra_token_to_sequence add_position_embedding adlr_autoresume "
      "adlr_autoresume_interval align_grad_reduce allow_ambiguous_pad_tokens app_tag_run_name "
      "app_tag_run_version apply_query_key_layer_scaling apply_rope_fusion "
      "apply_wd_to_qk_layernorm auto_detect_ckpt_format autocast_dtype autocast_enabled "
      "average_in_collective barrier_with_L1_time batch_invariant_backend batch_invariant_mode "
      "batch_p2p_comm batch_p2p_sync batch_size beta_fast beta_slow bias_dropout_add_fusion "
      "blend_per_split cache_mla_latents calc_ft_timeouts calculate_per_token_loss "
      "classes_fraction clone_scatter_output_in_embedding config_logger_dir constant_steps "
      "consumed_train_samples consumed_valid_samples create_all_gather_group "
      "create_attention_mask create_attention_mask_in_dataloader data_args_path data_cache_path "
      "data_impl data_parallel_size data_per_class_fraction data_sharding "
      "dataloader_defer_npy_index_mmap dataloader_fast_cache_load dataset_kwargs "
      "ddp_average_in_collective ddp_pad_buckets_for_high_nccl_busbw "
      "ddp_param_name_patterns_for_fp32_local_accumulation "
      "ddp_reduce_scatter_with_fp32_accumulation deallocate_pipeline_outputs "
      "decode_only_cuda_graphs decoupled_min_lr decoupled_weight_decay "
      "decrease_batch_size_if_needed delay_offload_until_cuda_graph "
      "delta_offload_bytes_across_pp_ranks disable_bf16_reduced_precision_matmul "
      "disable_jit_fuser disable_parameter_transpose_cache disable_symmetric_registration "
      "distributed_backend distributed_timeout_minutes distributed_timeout_seconds_after_init "
      "do_layer_norm_weight_decay do_test do_train do_valid drop_last "
      "drop_last_partial_validation_sequence dump_param_to_param_group_map "
      "embedding_init_method embedding_init_method_std embedding_path enable_autocast "
      "enable_chunked_prefill enable_ft_package enable_msc enable_one_logger "
      "ep_overlap_early_attn_memory_release eval_global_batch_size eval_micro_batch_size "
      "eval_only experimental_attention_variant_loss_scale_func external_gpu_device_mapping "
      "filter_warnings finalize_model_grads_func fine_grained_offloading_max_inflight_offloads "
      "flash_attention_version flash_decode fp4_quantizer_factory fp4_recipe "
      "fp8_amax_history_len fp8_interval fp8_output_proj fp8_quantizer_factory fp8_wgrad "
      "frequency fsdp_all_gather_in_start_param_sync fsdp_db_use_persist_buf_on_alloc_fail "
      "fsdp_manual_registration ft_num_warmup_iters full_validation fully_parallel_load "
      "fully_parallel_save fused_residual_rmsnorm fused_single_qkv_rope "
      "gpu_sniff_test_interval grad_allreduce_chunk_size_mb grad_div_ar_fusion "
      "grad_norm_skip_threshold grad_scale_func grad_sync_func gradient_accumulation_fusion "
      "gradient_as_bucket_view gradient_reduce_div_fusion gtp_remat_opt_in_modules head_lr_mult "
      "headscale hetereogenous_dist_checkpoint hf_model_id hf_model_revision "
      "high_priority_a2a_comm_stream "
      "high_priority_stream_groups index_mapping_dir inference init_global_step init_method "
      "init_method_xavier_uniform interval iter_per_epoch iteration iterations_to_skip kv_cache "
      "layernorm_zero_centered_gamma lazy_init lazy_mpu_init legacy_tokenizer load "
      "load_main_params_from_ckpt local_rank lr_decay_steps lr_warmup_init lr_warmup_steps "
      "lr_wsd_decay_samples manual_gc_eval masked_softmax_fusion max_tokens_to_oom "
      "mcore_customization_config mcore_gpt memory_efficient_layer_norm memory_snapshot_path "
      "merge_file microbatch_group_size_per_vp_stage mid_level_dataset_surplus "
      "min_offloaded_tensor_size mlp_chunks_for_prefill mmap_bin_files mock mock_data "
      "model_type moe_apply_probs_on_input moe_combine_bwd_dtype moe_dispatch_fwd_dtype "
      "moe_enable_deepep moe_enable_routing_replay moe_grad_scale_func moe_input_jitter_eps "
      "moe_mlp_glu_interleave_size moe_ncclep_zero_copy "
      "moe_pad_experts_for_cuda_graph_inference moe_per_layer_logging "
      "moe_permute_fusion_into_hybridep moe_shared_expert_glu_interleave_size "
      "moe_shared_expert_overlap moe_single_grouped_bias moe_single_grouped_weight "
      "moe_token_drop_policy moe_upcycling_granularity moe_use_grouped_tensor monitor "
      "most_recent_k mrope_section mtp_detach_heads mtp_enabled mtp_grad_scale_func mtp_hsm "
      "mtp_standalone multiple_validation_sets native_amp_growth_interval native_amp_init_scale "
      "nccl_all_reduce_for_prefill nccl_communicator_config no_sync_func "
      "no_weight_decay_cond_type nsys_profile null_tokenizer_pad_id num_buckets num_channels "
      "num_classes num_dataset_builder_threads num_floating_point_operations_so_far "
      "num_layers_at_end_in_bf16 num_layers_at_start_in_bf16 num_sanity_val_steps "
      "num_speculative_tokens num_test_samples num_train_samples num_val_samples num_workers "
      "object_storage_cache_path offload_modules offset_sampling_seed_by_dp_rank onnx_safe "
      "openai_gelu optimizer_config_override_provider output_bert_embeddings "
      "output_layer_init_method overlap_cpu_optimizer_d2h_h2d "
      "overlap_dispatch_backward_with_experts_wgrad overlap_p2p_comm "
      "overlap_p2p_comm_warmup_flush override_ckpt_iteration pad_buckets_for_high_nccl_busbw "
      "pad_vocab_size parallel_output param_name_patterns_for_fp32_local_accumulation "
      "param_sync_func params_dtype patch_dim path_to_cache per_dataset_sequences_path "
      "per_split_data_args_path perform_initialization persistent_workers "
      "phase_transition_iterations pin_cpu_grads pin_cpu_params pin_memory pipeline_dtype "
      "pipeline_model_parallel_comm_backend post_process pre_process precision_plugin "
      "progress_interval qk_clip qk_clip_alpha qk_clip_threshold qk_l2_norm quant_recipe "
      "random_seed rank reduce_scatter_with_fp32_accumulation refit_method "
      "relative_attention_max_distance relative_attention_num_buckets replication_factor "
      "restore_config restore_modelopt_state resume_from_checkpoint "
      "reuse_grad_buf_for_mxfp8_param_ag rope_type runtime_time_unit sample_rate save "
      "scale_positional_embedding scatter_embedding_sequence_parallel setup_optimizers sft "
      "sharp_enabled_group skip_getting_attention_mask_from_dataset "
      "skip_sync_grad_norm_across_mp softmax_scale special_tokens "
      "start_eval_at_iter start_iteration strict_fsdp_dtensor_load "
      "suggested_communication_unit_size symmetric_ar_type sync_batch_comm te_rng_tracker "
      "timers tokenizer total_model_parallel_size tp_only_amax_red train_valid_test_num_samples "
      "transformer_block_type transformer_engine transformer_layer_spec "
      "transformer_pipeline_model_parallel_size trust_remote_code ub_tp_comm_overlap "
      "ub_tp_comm_overlap_cfg use_arbitrary_attention_mask use_cpu_initialization use_dist_ckpt "
      "use_emha use_flash_attention use_fused_weighted_squared_relu use_gloo_process_groups "
      "use_grouped_gemm_for_shared_expert use_kitchen use_kitchen_attention "
      "use_layer_wise_param_layout use_legacy_models use_mamba_mem_eff_path "
      "use_one_sent_docs "
      "use_ring_exchange_p2p use_sharp use_te_activation_func use_te_rng_tracker "
      "use_tokenizer_model_from_checkpoint_args use_torch_optimizer_for_cpu_offload "
      "use_transformer_engine_full_layer_spec use_transformer_engine_op_fuser "
      "validation_set_names vocab_file warmup wd_incr_steps wgrad_deferral_limit "
      "wsd_decay_steps yaml_cfg skip_warmup masked_lm_prob ceil_to_power_2 pad_to_max_length "
      "get_attention_mask_from_fusion ");
  return kWords;
}

const std::vector<std::string_view>& megatron_field_heads() {
  static const std::vector<std::string_view> kHeads = split_words(
      "adaptive_muon_ async_ bert_ biencoder_ block_ check_ ckpt_ comet_ cpu_offloading_ "
      "cuda_graph_ data_parallel_random dino_ dist_ckpt_ dsa_ error_injection_ evidence_ exit_ "
      "fim_ flight_recorder_ gdp_ grpo_ ict_ img_ indexer_ inference_ inprocess_ kernel_ "
      "kitchen_ langrl_ linear_ lion_ log_ logits_ mask_ megatron_fsdp_ mhc_ mlflow_ "
      "moe_deepep_ moe_flex_ moe_hybridep_ moe_paged_stash_ moe_router_ muon muon_ mup_ "
      "non_persistent_ nvrx_ one_logger_ otel_ profile_ query_ rerun_ result_ retriever_ rl_ "
      "save_ sft_ short_seq_ soap_ straggler_ swin_ tensorboard_ test_ throughput_ tiktoken_ "
      "timing_ titles_ tokenizer_ tp_comm_ train_data valid_ vision_ vocab_extra wandb_ yarn_ ");
  return kHeads;
}

}  // namespace smp::importers
