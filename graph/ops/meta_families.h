// The functions that the meta column of the op table names.
#pragma once

#include "graph/ops/meta_rule.h"

namespace framejit::graph {

// ---- meta_rules_pointwise.cpp
bool meta_same_type(Stack* stack);  // one tensor, its type
bool meta_absolute(Stack* stack);
bool meta_angle(Stack* stack);
bool meta_to_float(Stack* stack);    // integers become the default float
bool meta_float_only(Stack* stack);  // one tensor, a float
bool meta_float_like(Stack* stack);  // the same as empty_like
bool meta_to_bool(Stack* stack);
bool meta_promoted(Stack* stack);  // two tensors, their common type
bool meta_reversed(Stack* stack);  // the same, computed as (second, first)
bool meta_where(Stack* stack);
bool meta_complex(Stack* stack);
bool meta_gradient_and_self(Stack* stack);
bool meta_masked_gradient(Stack* stack);
bool meta_like_first(Stack* stack);        // empty_like of argument 0
bool meta_like_second(Stack* stack);       // of argument 1
bool meta_contiguous_first(Stack* stack);  // contiguous, like argument 0
bool meta_contiguous_second(Stack* stack);
bool meta_prelu(Stack* stack);
bool meta_prelu_backward(Stack* stack);
bool meta_log_sigmoid(Stack* stack);
bool meta_scaled_lists(Stack* stack);

// ---- meta_rules_networks.cpp
bool meta_dropout(Stack* stack);
bool meta_layer_norm(Stack* stack);
bool meta_layer_norm_backward(Stack* stack);
bool meta_group_norm(Stack* stack);
bool meta_group_norm_backward(Stack* stack);
bool meta_batch_norm(Stack* stack);
bool meta_batch_norm_functional(Stack* stack);
bool meta_batch_norm_backward(Stack* stack);
bool meta_pad_images(Stack* stack);
bool meta_reflect_images(Stack* stack);
bool meta_like_second_image(Stack* stack);
bool meta_like_second_dense(Stack* stack);
bool meta_adaptive_pool(Stack* stack);
bool meta_adaptive_pool_backward(Stack* stack);
bool meta_grid_sampler(Stack* stack);
bool meta_grid_sampler_backward(Stack* stack);
bool meta_loss(Stack* stack);
bool meta_loss_backward(Stack* stack);
bool meta_ctc_loss(Stack* stack);
bool meta_attention_cpu(Stack* stack);
bool meta_attention_cpu_backward(Stack* stack);

// ---- meta_rules_convolution.cpp
bool meta_convolution(Stack* stack);
bool meta_convolution_backward(Stack* stack);

// ---- meta_checks.cpp
bool check_strides_first(Stack* stack);  // sizes and strides are given, from
bool check_strides_second(Stack* stack);
bool check_addmm(Stack* stack);

// ---- meta_rules_indexing.cpp
bool meta_dot(Stack* stack);
bool meta_embedding_backward(Stack* stack);
bool meta_index_select(Stack* stack);
bool meta_flip(Stack* stack);
bool meta_positions(Stack* stack);  // bucketize, searchsorted
bool meta_variance(Stack* stack);
bool meta_variance_and_mean(Stack* stack);
bool meta_full_extremum(Stack* stack);
bool meta_full_product(Stack* stack);

}  // namespace framejit::graph
