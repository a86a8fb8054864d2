// What the text of every CUDA kernel begins with: names of types, operations
// that the language has not or has otherwise, and what the threads of a team do
// together. It needs no header, so NVRTC has little to read.
#pragma once

namespace framejit::codegen {

const char* cuda_prelude();

}  // namespace framejit::codegen
