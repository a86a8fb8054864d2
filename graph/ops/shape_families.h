// The functions that the shape column of the op table names: one per family.
#pragma once

#include "graph/ops/shape_rules.h"

namespace framejit::graph {

// ---- shape_rules_pointwise.cpp
bool shape_pointwise(ShapeCall& call);    // broadcast of all tensors
bool shape_like_first(ShapeCall& call);   // all results like argument 0
bool shape_like_second(ShapeCall& call);  // all results like argument 1
bool shape_reduction(ShapeCall& call);    // arguments `dim`, `keepdim`
bool shape_scalar(ShapeCall& call);       // results without dims
bool shape_factory(ShapeCall& call);      // argument `size`
bool shape_arange(ShapeCall& call);
bool shape_topk(ShapeCall& call);

// ---- shape_rules_view.cpp
bool shape_alias(ShapeCall& call);
bool shape_view(ShapeCall& call);
bool shape_reshape_alias(ShapeCall& call);
bool shape_expand(ShapeCall& call);
bool shape_permute(ShapeCall& call);
bool shape_transpose(ShapeCall& call);
bool shape_t(ShapeCall& call);
bool shape_diagonal(ShapeCall& call);
bool shape_slice(ShapeCall& call);
bool shape_select(ShapeCall& call);
bool shape_unsqueeze(ShapeCall& call);
bool shape_squeeze(ShapeCall& call);
bool shape_unbind(ShapeCall& call);
bool shape_split(ShapeCall& call);
bool shape_split_with_sizes(ShapeCall& call);
bool shape_as_strided(ShapeCall& call);

// ---- shape_rules_matmul.cpp
bool shape_mm(ShapeCall& call);
bool shape_addmm(ShapeCall& call);
bool shape_bmm(ShapeCall& call);
bool shape_baddbmm(ShapeCall& call);
bool shape_mv(ShapeCall& call);
bool shape_dot(ShapeCall& call);
bool shape_attention_cpu(ShapeCall& call);
bool shape_attention_cpu_backward(ShapeCall& call);

// ---- shape_rules_nn.cpp
bool shape_layer_norm(ShapeCall& call);
bool shape_layer_norm_backward(ShapeCall& call);
bool shape_batch_norm(ShapeCall& call);
bool shape_group_norm(ShapeCall& call);
bool shape_convolution(ShapeCall& call);
bool shape_convolution_backward(ShapeCall& call);
bool shape_pool(ShapeCall& call);
bool shape_adaptive_pool(ShapeCall& call);
bool shape_embedding(ShapeCall& call);
bool shape_embedding_backward(ShapeCall& call);
bool shape_nll_loss(ShapeCall& call);
bool shape_loss(ShapeCall& call);
bool shape_cat(ShapeCall& call);
bool shape_stack(ShapeCall& call);
bool shape_index_select(ShapeCall& call);
bool shape_gather(ShapeCall& call);
bool shape_index(ShapeCall& call);
bool shape_sizes_second(ShapeCall& call);  // argument 1 is the result's sizes
bool shape_repeat(ShapeCall& call);
bool shape_pad(ShapeCall& call);

}  // namespace framejit::graph
