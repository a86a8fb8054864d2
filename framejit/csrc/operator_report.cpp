#include "framejit/csrc/operator_report.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/utils/pybind.h>

#include "graph/ops/op_facts.h"

namespace py = pybind11;

namespace framejit {

namespace {

// visit(op, facts, "add.Tensor")
template <class Visit>
void for_each_operator(Visit visit) {
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNames()) {
    if (!name.name.starts_with("aten::")) continue;
    auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op) continue;
    graph::OpFacts& facts = graph::facts_of(*op);
    visit(*op, facts, facts.name.substr(6));
  }
}

}  // namespace

void distrust_operators(const std::set<std::string>& names) {
  for_each_operator([&](const c10::OperatorHandle& op, graph::OpFacts&,
                        const std::string& name) {
    if (names.empty() || names.contains(name))
      graph::trusted_operator(op).surprise(/*certain=*/false);
  });
}

Ref operator_report() {
  py::list result;
  for_each_operator([&](const c10::OperatorHandle& op, graph::OpFacts& facts,
                        const std::string& name) {
    static const char* kernels[] = {"none", "meta", "explicit", "implicit",
                                    "python"};
    static const char* sources[] = {"torch", "rehearse", "rule", "none"};
    py::dict row;
    row["name"] = name;
    row["kernel"] = kernels[static_cast<int>(facts.kernel.kind)];
    row["schema"] = c10::toString(op.schema());
    static const char* trusts[] = {"inference", "rehearsal", "nobody"};
    row["trust"] = trusts[static_cast<int>(facts.trust.load())];
    row["mutable"] = op.schema().is_mutable();
    row["row"] =
        facts.row ? py::cast(std::string(facts.row->name)) : py::none();
    if (facts.row) {
      row["meta"] = sources[static_cast<int>(facts.row->meta.kind)];
      row["shape"] = facts.row->shape != nullptr;
    }
    result.append(row);
  });
  return Ref::steal(result.release().ptr());
}

}  // namespace framejit
