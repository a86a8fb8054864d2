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
bool shape_topk(ShapeCall& call);
bool shape_multinomial(ShapeCall& call);

// ---- shape_rules_factories.cpp
bool shape_factory(ShapeCall& call);  // argument `size`
bool shape_factory_permuted(ShapeCall& call);
bool shape_strided_first(ShapeCall& call);  // sizes and strides are given, from
bool shape_strided_second(ShapeCall& call);  // this argument on
bool shape_arange(ShapeCall& call);
bool shape_eye(ShapeCall& call);
bool shape_count(ShapeCall& call);  // argument 0 says how many
bool shape_steps(ShapeCall& call);  // as many as the argument `steps` says
bool shape_histc(ShapeCall& call);
bool shape_histogram(ShapeCall& call);
bool shape_histogram_of_edges(ShapeCall& call);
bool shape_histogramdd(ShapeCall& call);
bool shape_bin_edges(ShapeCall& call);
bool shape_nonzero_static(ShapeCall& call);

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
bool shape_unfold(ShapeCall& call);
bool shape_memory_of_first(ShapeCall& call);
bool shape_copy(ShapeCall& call);  // of argument 1, in the place of argument 0
bool shape_narrow_copy(ShapeCall& call);
// New tensors with the sizes of views.
bool shape_of_copies(ShapeCall& call, ShapeRuleFunction view);
template <ShapeRuleFunction kView>
bool shape_copied(ShapeCall& call) {
  return shape_of_copies(call, kView);
}
bool shape_view_as_real(ShapeCall& call);
bool shape_view_as_complex(ShapeCall& call);

// ---- shape_rules_matmul.cpp
bool shape_mm(ShapeCall& call);
bool shape_addmm(ShapeCall& call);
bool shape_bmm(ShapeCall& call);
bool shape_baddbmm(ShapeCall& call);
bool shape_mv(ShapeCall& call);
bool shape_addmv(ShapeCall& call);
bool shape_addr(ShapeCall& call);
bool shape_addbmm(ShapeCall& call);
bool shape_dot(ShapeCall& call);
bool shape_attention_cpu(ShapeCall& call);
bool shape_attention_cpu_backward(ShapeCall& call);

// ---- shape_rules_linalg.cpp
bool shape_square(ShapeCall& call);  // a square matrix, and another one
bool shape_square_and_info(ShapeCall& call);
bool shape_determinant(ShapeCall& call);
bool shape_log_determinant(ShapeCall& call);
bool shape_eig(ShapeCall& call);
bool shape_eigh(ShapeCall& call);
bool shape_lu_factor(ShapeCall& call);
bool shape_lu(ShapeCall& call);
bool shape_lu_unpack(ShapeCall& call);
bool shape_qr(ShapeCall& call);
bool shape_geqrf(ShapeCall& call);
bool shape_svd(ShapeCall& call);
bool shape_pinv(ShapeCall& call);
bool shape_solve(ShapeCall& call);
bool shape_solve_triangular(ShapeCall& call);
bool shape_cholesky_solve(ShapeCall& call);
bool shape_lu_solve(ShapeCall& call);
bool shape_ldl_solve(ShapeCall& call);
bool shape_triangular_solve(ShapeCall& call);
bool shape_householder_product(ShapeCall& call);
bool shape_ormqr(ShapeCall& call);
bool shape_cdist(ShapeCall& call);
bool shape_pdist(ShapeCall& call);
bool shape_trilinear(ShapeCall& call);
bool shape_fft(ShapeCall& call);

// ---- shape_rules_images.cpp
bool shape_pad(ShapeCall& call);
bool shape_resized(ShapeCall& call);           // argument 1: the last sizes
bool shape_resized_third(ShapeCall& call);     // argument 2
bool shape_resized_backward(ShapeCall& call);  // argument 2: all sizes
bool shape_im2col(ShapeCall& call);
bool shape_col2im(ShapeCall& call);
bool shape_pixel_shuffle(ShapeCall& call);
bool shape_pixel_unshuffle(ShapeCall& call);
bool shape_affine_grid(ShapeCall& call);
bool shape_grid_sampler(ShapeCall& call);
bool shape_grid_sampler_backward(ShapeCall& call);

// ---- shape_rules_nn.cpp
bool shape_layer_norm(ShapeCall& call);
bool shape_layer_norm_backward(ShapeCall& call);
bool shape_batch_norm(ShapeCall& call);
bool shape_batch_norm_backward(ShapeCall& call);
bool shape_group_norm(ShapeCall& call);
bool shape_group_norm_backward(ShapeCall& call);
bool shape_convolution(ShapeCall& call);
bool shape_convolution_backward(ShapeCall& call);
bool shape_pool(ShapeCall& call);
bool shape_adaptive_pool(ShapeCall& call);
bool shape_embedding(ShapeCall& call);
bool shape_embedding_backward(ShapeCall& call);
bool shape_embedding_bag(ShapeCall& call);
bool shape_recurrent(ShapeCall& call);  // recurrent.h
bool shape_recurrent_backward(ShapeCall& call);
bool shape_native_attention(ShapeCall& call);
bool shape_embedding_bag_backward(ShapeCall& call);
bool shape_weight_norm(ShapeCall& call);
bool shape_weight_norm_backward(ShapeCall& call);
bool shape_glu(ShapeCall& call);
bool shape_nll_loss(ShapeCall& call);
bool shape_nll_loss2d(ShapeCall& call);
bool shape_margin_loss(ShapeCall& call);
bool shape_multilabel_margin_loss(ShapeCall& call);
bool shape_segment_reduce(ShapeCall& call);
bool shape_segment_reduce_backward(ShapeCall& call);
bool shape_loss(ShapeCall& call);
bool shape_cat(ShapeCall& call);
bool shape_chunk_cat(ShapeCall& call);
bool shape_stack(ShapeCall& call);
bool shape_index_select(ShapeCall& call);
bool shape_gather(ShapeCall& call);
bool shape_index(ShapeCall& call);
bool shape_masked_index(ShapeCall& call);
bool shape_masked_scatter(ShapeCall& call);
bool shape_sizes_second(ShapeCall& call);  // argument 1 is the result's sizes
bool shape_sizes_third(ShapeCall& call);   // argument 2
bool shape_repeat(ShapeCall& call);
bool shape_diag_embed(ShapeCall& call);
bool shape_block_diag(ShapeCall& call);
bool shape_rot90(ShapeCall& call);

}  // namespace framejit::graph
