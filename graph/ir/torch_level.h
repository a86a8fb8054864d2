// Why a graph runs at torch level, in words: the reason (torch_level.def), what
// it is about, and the program's own line.
#pragma once

#include <string>
#include <unordered_map>

#include "graph/ir/ir.h"

namespace framejit::graph {

enum class TorchLevel : uint8_t {
#define FJ_TORCH_LEVEL(name, text, advice) name,
#include "graph/ir/torch_level.def"
#undef FJ_TORCH_LEVEL
};

// subject: for {}. where: an operator, an input, and the line.
std::string torch_level_text(TorchLevel reason, const std::string& where,
                             const std::string& subject = "");
Break torch_level_only(TorchLevel reason, const std::string& where,
                       const std::string& subject = "");

// "train.py:12 in step", or, where the line is a library's, "train.py:12 in
// step, by functional.py:80 in pad". caller: the program's line that led there.
std::string line_in_program(const Span& span, const Span& caller);
// "torch.add at train.py:12 in step"; null: "".
std::string place_of_node(const Node* node);
std::string name_of_input(const Value& input);
// Of what is an input, its name, of others what made it.
std::string place_of_value(const Value& value);
// Of an input of a graph that is written to: its name, and the line that does
// so first.
std::string place_of_written(
    const Graph& graph, int input,
    const std::unordered_map<int, std::string>& written_at);
// Is the line one of a library, an installed package's or Python's own?
bool is_in_library(const Span& span);

}  // namespace framejit::graph
