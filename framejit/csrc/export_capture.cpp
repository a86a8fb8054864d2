#include "framejit/csrc/export_capture.h"

#include <pybind11/stl.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/DynamicTypes.h>

#include <memory>
#include <unordered_map>

#include "bytecode/capture/capture.h"
#include "frame_hook/collector.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/dispatcher.h"
#include "frame_hook/options.h"
#include "frame_hook/program_code.h"
#include "framejit/csrc/jit_compiler.h"
#include "framejit/csrc/reports.h"
#include "graph/export/program_graph.h"
#include "graph/fx/objects.h"
#include "graph/joint/joint.h"
#include "graph/passes/passes.h"
#include "graph/tracing/program_state.h"
#include "graph/tracing/tracer.h"
#include "guards/set/evaluate.h"

namespace py = pybind11;

namespace framejit {
namespace {

py::object own(Ref object) {
  if (!object) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object.release());
}
py::object borrowed(PyObject* object) {
  return object ? py::reinterpret_borrow<py::object>(object) : py::none();
}

[[noreturn]] void raise_break(const Break& brk) {
  PyErr_SetString(known_error_types().graph_break.get(),
                  break_report(brk).c_str());
  throw py::error_already_set();
}

// An int, or the text of an expression.
py::object number(const Expr& expr) {
  if (expr.is_const()) return py::int_(expr.constant());
  if (expr.is_float_const()) return py::float_(expr.real());
  return py::str(expr.str());
}

py::tuple numbers(const std::vector<Expr>& exprs) {
  py::tuple out(exprs.size());
  for (size_t i = 0; i < exprs.size(); ++i) out[i] = number(exprs[i]);
  return out;
}

// (dtype, sizes, strides, offset, device, requires_grad) of a tensor, the
// number of a number, else None.
py::object description(const graph::Value& value) {
  if (value.kind == graph::Value::Kind::kInt) return number(value.expr);
  if (value.kind != graph::Value::Kind::kTensor) return py::none();
  const graph::TensorMeta& meta = value.meta;
  return py::make_tuple(
      borrowed(reinterpret_cast<PyObject*>(torch::getTHPDtype(meta.dtype))),
      numbers(meta.sizes), numbers(meta.strides), number(meta.storage_offset),
      own(Ref::steal(THPDevice_New(meta.device))), meta.requires_grad);
}

// (file, line, function), or None.
py::object place(const Span& span) {
  if (!span.code || !PyCode_Check(span.code.get())) return py::none();
  Ref program = program_code(span.code.get());
  auto* code = reinterpret_cast<PyCodeObject*>(program.get());
  const int line = program.get() == span.code.get() ? span_line(span) : 0;
  return py::make_tuple(borrowed(code->co_filename),
                        line ? line : code->co_firstlineno,
                        borrowed(code->co_name));
}

const Source* root_of(const Source* source) {
  while (source && source->base) source = source->base;
  return source;
}

// The parameter slot a path begins with; -1: none.
int slot_of(const Source* source) {
  const Source* root = root_of(source);
  return root && root->kind == SourceKind::kArg ? static_cast<int>(root->index)
                                                : -1;
}

class ExportCapture {
 public:
  ExportCapture(py::object function, const py::tuple& args,
                const std::vector<std::string>& dynamic_numbers)
      : function_(std::move(function)), args_(args) {
    if (!PyFunction_Check(function_.ptr()))
      throw py::type_error("export_capture: a function");
    for (const std::string& text : dynamic_numbers) dynamic_[text] = true;
    // A handler of a signal may have run in between; then it is made again.
    for (int attempt = 0; attempt < 2; ++attempt) {
      std::string error;
      switch (run_alone([&] { capture(); }, &error)) {
        case WorkEnd::kDone:
          // What ran natively meanwhile may have changed what a guard looks at
          // (a function gets its dict of annotations when it is asked for it).
          if (attempt == 0 && failed_ &&
              failed_->reason == BreakReason::kInternal)
            break;
          finish();
          return;
        case WorkEnd::kBusy:
          PyErr_SetString(PyExc_RuntimeError,
                          "framejit.export: a compilation is under way, on "
                          "another thread or around this call");
          throw py::error_already_set();
        case WorkEnd::kFailed:
          set_internal_error(error);
          throw py::error_already_set();
        case WorkEnd::kRaised:
          throw py::error_already_set();
        case WorkEnd::kInterrupted:
          break;
      }
    }
    PyErr_SetString(PyExc_RuntimeError,
                    "framejit.export: interrupted by a signal, twice");
    throw py::error_already_set();
  }

  // By graph input: (slot, text of the path, object or None, description).
  py::list inputs() const {
    py::list rows;
    const auto& gathered = guards().gathered();
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const int object = input_objects_[i];
      const Source* source = object >= 0 ? gathered[object] : nullptr;
      rows.append(py::make_tuple(
          source ? slot_of(source) : -1, source ? text(source) : "",
          object >= 0 ? borrowed(objects_[object]) : py::none(),
          description(*inputs_[i])));
    }
    return rows;
  }

  py::list gathered() const {
    py::list rows;
    for (size_t i = 0; i < guards().gathered().size(); ++i) {
      const Source* source = guards().gathered()[i];
      rows.append(
          py::make_tuple(slot_of(source), text(source), borrowed(objects_[i])));
    }
    return rows;
  }

  py::list constants() const {
    py::list rows;
    if (!graph_) return rows;
    for (const Ref& object : graph::constants_of(*graph_))
      rows.append(borrowed(object.get()));
    return rows;
  }

  // (kind, slot, text of the tensor's or number's path, dim, value).
  py::list symbols() const {
    py::list rows;
    for (const Symbol& symbol : guards().symbols()) {
      const SourceKind kind = symbol.source->kind;
      const char* name = kind == SourceKind::kTensorSize     ? "size"
                         : kind == SourceKind::kTensorStride ? "stride"
                         : kind == SourceKind::kTensorOffset ? "offset"
                         : kind == SourceKind::kIntValue     ? "value"
                                                             : "other";
      rows.append(py::make_tuple(name, slot_of(symbol.source),
                                 text(symbol.source->base),
                                 symbol.source->index, symbol.hint));
    }
    return rows;
  }

  // (kind, slot, text, place, cause, expression or None, path of the object).
  py::list facts() const {
    py::list rows;
    for (const Guard& guard : guards().guards()) {
      const bool is_expr = guard.kind == GuardKind::kShapeExpr;
      rows.append(py::make_tuple(
          guard_kind_row(guard.kind).name,
          guard.source ? slot_of(guard.source) : -1,
          guard_text(guards(), guard, code()), place(guard.span),
          guard.cause ? py::object(py::str(guard.cause)) : py::none(),
          is_expr ? py::object(py::str(guard.expr.str())) : py::none(),
          guard.source ? text(guard.source) : ""));
    }
    return rows;
  }

  // (kind, index, object, expression, operands, place), and which is returned.
  py::list steps() const {
    py::list rows;
    for (const bytecode::Step& step : outcome_->steps) {
      static constexpr const char* kNames[] = {
          "output", "gathered", "const", "symbolic", "function",
          "tuple",  "list",     "set",   "dict",     "call"};
      const bool is_number = step.kind == bytecode::Step::Kind::kSymbolic;
      rows.append(
          py::make_tuple(kNames[static_cast<size_t>(step.kind)], step.index,
                         borrowed(step.object.get()),
                         is_number ? number(step.expr) : py::object(py::none()),
                         step.operands, place(step.span)));
    }
    return rows;
  }
  int result() const { return outcome_->result; }

  // By graph output: what it is known to be (a description or a number).
  py::list outputs() const {
    py::list rows;
    if (!graph_) return rows;
    for (const graph::Arg& arg : graph_->outputs) {
      if (arg.is<graph::Value*>())
        rows.append(description(*arg.get<graph::Value*>()));
      else if (arg.is<Expr>())
        rows.append(number(arg.get<Expr>()));
      else if (arg.is<int64_t>())
        rows.append(arg.get<int64_t>());
      else
        rows.append(py::none());
    }
    return rows;
  }
  // Graph inputs that are written to.
  std::vector<int> mutations() const {
    std::vector<int> inputs;
    if (!graph_) return inputs;
    for (const auto& mutation : graph_->mutations)
      inputs.push_back(mutation.input);
    return inputs;
  }
  bool uses_random() const { return uses_random_; }
  std::string text_of_graph() const { return graph_ ? graph_->str() : ""; }

  // placeholders: (name, graph input or -1, constant or -1); symbols: (kind,
  // placeholder, dim) each; outputs: (kind, index or expression or object).
  // Gives (node, description(s), is a list, place, caller, receivers) in order.
  py::list write(py::object fx_graph, const py::list& placeholders,
                 const py::list& symbols, const py::list& outputs) {
    static const graph::Graph kNothing;
    const graph::Graph& graph = graph_ ? *graph_ : kNothing;
    std::vector<graph::ProgramInput> inputs;
    for (py::handle row : placeholders) {
      auto fields = row.cast<std::tuple<std::string, int, int>>();
      inputs.push_back(
          {std::get<0>(fields), std::get<1>(fields), std::get<2>(fields)});
    }
    std::vector<graph::SymbolPlace> places;
    for (py::handle row : symbols) {
      auto fields = row.cast<std::tuple<std::string, int, int>>();
      using Kind = graph::SymbolPlace::Kind;
      const std::string& kind = std::get<0>(fields);
      places.push_back({kind == "size"     ? Kind::kSize
                        : kind == "stride" ? Kind::kStride
                        : kind == "offset" ? Kind::kOffset
                        : kind == "value"  ? Kind::kValue
                                           : Kind::kNowhere,
                        std::get<1>(fields), std::get<2>(fields)});
    }
    std::vector<graph::ProgramOutput> results;
    for (py::handle row : outputs) {
      auto fields = row.cast<std::pair<std::string, py::object>>();
      using Kind = graph::ProgramOutput::Kind;
      graph::ProgramOutput output;
      if (fields.first == "output" || fields.first == "mutation" ||
          fields.first == "placeholder") {
        output.kind = fields.first == "output"     ? Kind::kOutput
                      : fields.first == "mutation" ? Kind::kMutation
                                                   : Kind::kPlaceholder;
        output.index = fields.second.cast<int>();
      } else if (fields.first == "number") {
        output.kind = Kind::kNumber;
        if (!Expr::parse(fields.second.cast<std::string>(), &output.number))
          throw py::value_error("an expression");
      } else {
        output.object = Ref::borrow(fields.second.ptr());
      }
      results.push_back(std::move(output));
    }
    std::vector<graph::WrittenNode> written;
    try {
      written =
          graph::write_program(graph, fx_graph.ptr(), inputs, places, results);
    } catch (const graph::fx::Raised&) {
      throw py::error_already_set();
    } catch (const Break& brk) {
      raise_break(brk);
    } catch (const InternalError&) {
      set_internal_error(current_exception_text());
      throw py::error_already_set();
    }
    py::list rows;
    for (graph::WrittenNode& node : written) {
      py::list values;
      for (const graph::Value* value : node.values)
        values.append(description(*value));
      if (!node.source) values.append(number(node.number));
      rows.append(py::make_tuple(
          own(std::move(node.node)), values, node.is_list,
          node.source ? place(node.source->span) : py::object(py::none()),
          node.source ? place(node.source->caller) : py::object(py::none()),
          receivers(node.source)));
    }
    return rows;
  }

 private:
  static py::list receivers(const graph::Node* node) {
    py::list objects;
    if (!node) return objects;
    for (const Ref& object : node->receivers)
      objects.append(borrowed(object.get()));
    return objects;
  }
  const GuardSet& guards() const { return *outcome_->guards; }
  PyObject* code() const { return PyFunction_GET_CODE(function_.ptr()); }
  std::string text(const Source* source) const {
    return source ? source_text(source, code()) : "";
  }

  void capture() {
    failed_.reset();
    error_ = nullptr;
    graph::ProgramState program;
    std::unique_ptr<TensorTracer> tracer = graph::make_tracer();
    if (std::string refused = tracer->refusal(); !refused.empty()) {
      failed_ = Break{BreakReason::kThreadState, std::move(refused), {}};
      return;
    }
    std::vector<PyObject*> slots;
    for (py::handle arg : args_) slots.push_back(arg.ptr());
    bytecode::CaptureRequest request{
        .function = function_.ptr(),
        .args = slots.data(),
        .num_args = slots.size(),
        .fullgraph = true,
        .max_instructions =
            static_cast<size_t>(framejit::options().max_instructions),
        .dynamic_numbers = &dynamic_,
        .joins_equal_sizes = false,
        .notes_receivers = true,
    };
    auto captured = bytecode::capture(request, *tracer);
    if (!captured.ok()) return note_failure(captured);
    outcome_ = std::make_unique<bytecode::CaptureOutcome>(captured.take());
    if (!outcome_->breaks.empty()) {
      failed_ = outcome_->breaks.front().brk;
      return;
    }
    objects_.resize(guards().gathered().size() + 1);
    std::vector<int64_t> values(guards().symbols().size() + 1);
    size_t failed = 0;
    if (!evaluate(guards(), slots.data(), function_.ptr(), objects_.data(),
                  values.data(), &failed)) {
      failed_ = Break{BreakReason::kInternal,
                      "a guard fails for the call it was made from: " +
                          explain_failure(guards(), failed, slots.data(),
                                          function_.ptr(), code()),
                      {}};
      return;
    }
    trace();
    // What was gathered since stays where it is: `objects_` grows behind.
    objects_.resize(guards().gathered().size() + 1);
    if (!failed_ && !evaluate(guards(), slots.data(), function_.ptr(),
                              objects_.data(), values.data(), &failed)) {
      failed_ = Break{BreakReason::kInternal, "a guard of the trace fails", {}};
    }
  }

  void trace() {
    if (!outcome_->graph) return;
    const auto& torch_graph =
        static_cast<const graph::TorchGraph&>(*outcome_->graph);
    uses_random_ = torch_graph.uses_random;
    input_objects_ = torch_graph.input_objects;
    auto traced = graph::trace_functional(torch_graph, outcome_->guards.get());
    if (!traced.ok()) return note_failure(traced);
    graph_ = traced.take();
    graph::remove_dead_code(*graph_);
    for (const graph::Value* input : graph_->inputs) inputs_.push_back(input);
  }

  template <class T>
  void note_failure(Result<T>& result) {
    if (result.broke()) {
      failed_ = result.take_break();
      return;
    }
    PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value && traceback) PyException_SetTraceback(value, traceback);
    error_ = Ref::steal(value);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
  }

  void finish() {
    if (failed_) raise_break(*failed_);
    if (error_) {  // the program's own
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error_.get())),
                      error_.get());
      throw py::error_already_set();
    }
  }

  py::object function_;
  py::tuple args_;
  std::unordered_map<std::string, bool> dynamic_;
  std::optional<Break> failed_;
  Ref error_;
  std::unique_ptr<bytecode::CaptureOutcome> outcome_;
  std::unique_ptr<graph::Graph> graph_;
  std::vector<const graph::Value*> inputs_;
  std::vector<int> input_objects_;
  std::vector<PyObject*> objects_;  // of the guards, which keep them
  bool uses_random_ = false;
};

}  // namespace

void bind_export_capture(py::module_& m) {
  py::class_<ExportCapture>(m, "ExportCapture")
      .def(py::init<py::object, py::tuple, std::vector<std::string>>(),
           py::arg("function"), py::arg("args"),
           py::arg("dynamic_numbers") = std::vector<std::string>())
      .def("inputs", &ExportCapture::inputs)
      .def("gathered", &ExportCapture::gathered)
      .def("constants", &ExportCapture::constants)
      .def("symbols", &ExportCapture::symbols)
      .def("facts", &ExportCapture::facts)
      .def("steps", &ExportCapture::steps)
      .def("outputs", &ExportCapture::outputs)
      .def("mutations", &ExportCapture::mutations)
      .def("write", &ExportCapture::write)
      .def_property_readonly("result", &ExportCapture::result)
      .def_property_readonly("uses_random", &ExportCapture::uses_random)
      .def("__str__", &ExportCapture::text_of_graph);
}

}  // namespace framejit
