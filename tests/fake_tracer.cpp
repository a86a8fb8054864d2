#include "fake_tracer.h"

#include <algorithm>
#include <cstddef>

#include "guards/set/object_layout.h"
#include "guards/set/object_text.h"

namespace framejit::fake {
namespace {

FakeTracer* g_active = nullptr;
uint64_t g_captures = 0;

struct State {
  bool grad;
};

bool same_thread_state(const void* state) {
  return static_cast<const State*>(state)->grad == g_grad_enabled;
}
std::string explain_thread_state(const void* state) {
  bool expected = static_cast<const State*>(state)->grad;
  return std::string("grad mode: expected ") + (expected ? "on" : "off") +
         ", got " + (g_grad_enabled ? "on" : "off");
}
PyObject* gradient(PyObject* tensor) {
  PyObject* grad = reinterpret_cast<TensorObject*>(tensor)->grad;
  return Py_NewRef(grad ? grad : Py_None);
}

bool is_stand_in(PyObject* object) {
  return object && is_tensor(object) && impl_of(object)->trace;
}

}  // namespace

void install() {
  if (g_tensor) return;
  Ref module = Ref::steal(create_module());
  if (!module ||
      PyDict_SetItemString(PyImport_GetModuleDict(), "fake", module.get()) < 0)
    Py_FatalError("module fake could not be made");
  TensorLayout layout = {};
  layout.tensor_impl = offsetof(TensorObject, impl);
  layout.storage = offsetof(Impl, storage);
  layout.autograd_meta = offsetof(Impl, autograd);
  layout.sizes_and_strides = offsetof(Impl, dim);
  layout.storage_offset = offsetof(Impl, storage_offset);
  layout.data_type = offsetof(Impl, dtype);
  layout.device = offsetof(Impl, device);
  layout.key_set = offsetof(Impl, key_set);
  layout.requires_grad = offsetof(AutogradMeta, requires_grad);
  layout.grad_fn = offsetof(AutogradMeta, grad_fn);
  layout.storage_inline_dims = 5;
  layout.is_tensor = is_tensor;
  layout.same_thread_state = same_thread_state;
  layout.explain_thread_state = explain_thread_state;
  layout.gradient = gradient;
  set_tensor_layout(layout);
}

// ---- the tracer: one capture

FakeTracer::FakeTracer() { install(); }
FakeTracer::~FakeTracer() {
  if (running()) abandon();
}

std::string FakeTracer::refusal() {
  return overrides_are_as_usual() ? "" : "an override mode";
}

Status FakeTracer::begin(GuardSet* guards) {
  FJ_CHECK(!g_active, "captures do not nest");
  if (std::string why = refusal(); !why.empty()) {
    return broke(BreakReason::kThreadState, std::move(why));
  }
  guards_ = guards;
  graph_ = std::make_unique<FakeGraph>();
  capture_ = ++g_captures;
  grad_at_start_ = g_grad_enabled;
  pending_.reset();
  guards->set_thread_state(std::make_shared<State>(State{g_grad_enabled}));
  g_active = this;
  return ok_status();
}

void FakeTracer::end() {
  g_grad_enabled = grad_at_start_;
  g_active = nullptr;
  guards_ = nullptr;
  inputs_.clear();
  stand_ins_of_inputs_.clear();
  graph_.reset();
}

void FakeTracer::abandon() { end(); }

Result<std::unique_ptr<ForeignGraph>> FakeTracer::finish(
    const std::vector<PyObject*>& outputs) {
  for (PyObject* output : outputs) {
    auto argument = this->argument(output);
    if (!argument.ok()) {
      end();
      return argument.forward<std::unique_ptr<ForeignGraph>>();
    }
    graph_->outputs.push_back(argument.take());
  }
  if (inputs_.size() > 1) {
    std::vector<const Source*> sources;
    std::vector<int> groups;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      sources.push_back(inputs_[i].second);
      int group = static_cast<int>(i);
      for (size_t j = 0; j < i; ++j) {
        if (impl_of(inputs_[j].first)->storage ==
            impl_of(inputs_[i].first)->storage)
          group = groups[j];
      }
      groups.push_back(group);
    }
    guards_->add_storage_relation(sources, groups);
  }
  std::unique_ptr<ForeignGraph> graph = std::move(graph_);
  end();
  return graph;
}

std::vector<std::pair<Ref, std::vector<Ref>>> FakeTracer::state_now() {
  if (g_grad_enabled == grad_at_start_) return {};
  Ref function = Ref::steal(
      PyObject_GetAttrString(PyImport_AddModule("fake"), "set_grad_enabled"));
  std::vector<Ref> args{Ref::borrow(g_grad_enabled ? Py_True : Py_False)};
  return {{function, args}};
}

Break FakeTracer::broke(BreakReason reason, std::string detail) const {
  return Break{reason, std::move(detail), location_};
}

PyObject* FakeTracer::to_c(Result<Ref> result) {
  if (result.ok()) return result.take().release();
  if (result.broke()) {
    pending_ = result.take_break();
    PyErr_SetString(PyExc_RuntimeError, "break of the running capture");
  }
  return nullptr;
}

std::optional<Break> FakeTracer::pending_break() {
  return std::exchange(pending_, std::nullopt);
}

// ---- objects

ObjectClass FakeTracer::classify(PyObject* object) {
  if (is_sym(object)) return ObjectClass::kSymbolic;
  if (is_foreign_constant(object)) return ObjectClass::kConstant;
  if (!is_tensor(object)) return ObjectClass::kPlain;
  if (is_stand_in(object))
    return running() && impl_of(object)->trace->capture == capture_
               ? ObjectClass::kStandIn
               : ObjectClass::kStaleStandIn;
  if (Py_TYPE(object) == g_tensor || Py_TYPE(object) == g_parameter)
    return ObjectClass::kTensor;
  return ObjectClass::kUnsupported;
}

Result<Ref> FakeTracer::stand_in(PyObject* tensor, const Source* source,
                                 DynamicDims dynamic) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].second == source) return stand_ins_of_inputs_[i];
  }
  Impl* impl = impl_of(tensor);
  TensorSpec spec;
  TensorFields fields = tensor_fields(tensor);
  spec.type = Py_TYPE(tensor);
  spec.key_set = fields.key_set;
  spec.dtype = fields.dtype;
  spec.device_type = fields.device_type;
  spec.device_index = fields.device_index;
  spec.requires_grad = fields.requires_grad;
  std::vector<Expr> contiguous(impl->dim);
  std::vector<int> new_symbols;
  Expr stride = 1;
  bool is_contiguous = true;
  for (int64_t d = 0; d < impl->dim; ++d) {
    int64_t size = impl->sizes()[d];
    if (dynamic.sizes >> d & 1 && size > 1) {
      const Source* dim =
          guards_->sources().make(SourceKind::kTensorSize, source, nullptr, d);
      new_symbols.push_back(guards_->add_symbol(dim, size));
      spec.sizes.push_back(Expr::symbol(new_symbols.back()));
    } else {
      spec.sizes.push_back(Expr(size));
    }
  }
  for (int64_t d = impl->dim; d-- > 0;) {
    contiguous[d] = stride;
    is_contiguous = is_contiguous && hint(stride) == impl->strides()[d];
    if (impl->sizes()[d] > 1) stride = stride * spec.sizes[d];
  }
  for (int64_t d = 0; d < impl->dim; ++d) {
    int64_t number = impl->strides()[d];
    if (is_contiguous) {
      spec.strides.push_back(contiguous[d]);
    } else if (dynamic.strides >> d & 1 && number > 1) {
      const Source* place = guards_->sources().make(SourceKind::kTensorStride,
                                                    source, nullptr, d);
      new_symbols.push_back(guards_->add_symbol(place, number));
      spec.strides.push_back(Expr::symbol(new_symbols.back()));
    } else {
      spec.strides.push_back(Expr(number));
    }
  }
  std::vector<Expr> sizes = spec.sizes;
  guards_->add_tensor(source, std::move(spec));
  for (int symbol : new_symbols)
    guards_->add_expr(expr_le(Expr(2), Expr::symbol(symbol)));

  Ref object = make_tensor(Py_TYPE(tensor), impl->shape());
  if (!object) return Result<Ref>::raised();
  Impl* copy = impl_of(object.get());
  copy->dtype = impl->dtype;
  copy->set_requires_grad(impl->requires_grad());
  copy->trace = std::make_unique<Trace>();
  copy->trace->capture = capture_;
  copy->trace->sizes = std::move(sizes);
  copy->trace->source = source;
  copy->trace->real = Ref::borrow(tensor);
  copy->trace->node = static_cast<int>(graph_->nodes.size());
  FakeNode node;
  node.input = guards_->gather(source);
  node.name = "input";
  graph_->nodes.push_back(std::move(node));
  inputs_.emplace_back(tensor, source);
  stand_ins_of_inputs_.push_back(object);
  return object;
}

PyObject* FakeTracer::real_of(PyObject* object) {
  return is_stand_in(object) ? impl_of(object)->trace->real.get() : nullptr;
}
const Source* FakeTracer::source_of(PyObject* object) {
  return is_stand_in(object) ? impl_of(object)->trace->source : nullptr;
}

// ---- callees

CalleeClass FakeTracer::classify_callee(PyObject* callable) {
  PyObject* self;
  if (const Operation* operation = operation_of(callable, &self)) {
    PyObject* module =
        PyCFunction_Check(callable)
            ? reinterpret_cast<PyCFunctionObject*>(callable)->m_module
            : nullptr;
    // operator.add is Python's, not ours.
    if (module && PyUnicode_Check(module) &&
        PyUnicode_CompareWithASCIIString(module, "_operator") == 0)
      return CalleeClass::kNotForeign;
    (void)operation;
    return CalleeClass::kLeaf;
  }
  PyMethodDef* definition = nullptr;
  PyObject* owner = nullptr;
  if (PyCFunction_Check(callable)) {
    definition = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
    owner = PyCFunction_GET_SELF(callable);
  }
  if (definition && owner && is_tensor(owner)) return CalleeClass::kPure;
  if (PyFunction_Check(callable) || PyType_Check(callable)) {
    Ref module = Ref::steal(PyObject_GetAttrString(callable, "__module__"));
    PyErr_Clear();
    bool ours = module && PyUnicode_Check(module.get()) &&
                PyUnicode_CompareWithASCIIString(module.get(), "fake") == 0;
    if (!ours) return CalleeClass::kNotForeign;
    if (PyFunction_Check(callable)) {
      Ref name = Ref::borrow(
          reinterpret_cast<PyFunctionObject*>(callable)->func_qualname);
      return string_text(name.get()) == "region" ? CalleeClass::kSubBlock
                                                 : CalleeClass::kInline;
    }
    return PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(callable),
                            g_tensor_base)
               ? CalleeClass::kUnknown
               : CalleeClass::kInline;
  }
  PyObject* module =
      definition ? reinterpret_cast<PyCFunctionObject*>(callable)->m_module
                 : nullptr;
  if (!module || !PyUnicode_Check(module) ||
      PyUnicode_CompareWithASCIIString(module, "fake") != 0)
    return CalleeClass::kNotForeign;
  std::string name = definition->ml_name;
  for (PyMethodDef* row = g_override_functions; row->ml_name; ++row) {
    if (row == definition) return CalleeClass::kNotForeign;
  }
  if (name == "set_grad_enabled") return CalleeClass::kStateWrite;
  if (name == "is_grad_enabled") return CalleeClass::kStateRead;
  if (name == "is_compiling") return CalleeClass::kConstTrue;
  if (name == "checkpoint") return CalleeClass::kSubBlock;
  return CalleeClass::kUnknown;
}

Result<Ref> FakeTracer::record_state(PyObject* callable,
                                     const std::vector<PyObject*>& args) {
  Ref result = Ref::steal(
      PyObject_Vectorcall(callable, args.data(), args.size(), nullptr));
  if (!result) return Result<Ref>::raised();
  FakeNode node;
  node.callable = Ref::borrow(callable);
  node.name = "set_grad_enabled";
  for (PyObject* object : args) {
    FJ_TRY(NodeArgument argument, this->argument(object));
    node.args.push_back(std::move(argument));
  }
  node.span = location_;
  graph_->nodes.push_back(std::move(node));
  return result;
}

Result<Ref> FakeTracer::call(PyObject* callable,
                             const std::vector<PyObject*>& args,
                             PyObject* kwnames) {
  if (classify_callee(callable) == CalleeClass::kStateWrite)
    return record_state(callable, args);
  if (classify_callee(callable) == CalleeClass::kStateRead) {
    Ref read = Ref::steal(
        PyObject_Vectorcall(callable, args.data(), args.size(), nullptr));
    if (!read) return Result<Ref>::raised();
    return read;
  }
  PyObject* self;
  const Operation* operation = operation_of(callable, &self);
  if (!operation)
    return broke(BreakReason::kUnknownOperation, object_text(callable));
  std::vector<PyObject*> all = args;
  Ref target = Ref::borrow(callable);
  if (self) {
    all.insert(all.begin(), self);
    target = Ref::steal(PyObject_GetAttrString(
        reinterpret_cast<PyObject*>(g_tensor_base), operation->name));
    if (!target) return Result<Ref>::raised();
  }
  std::vector<PyObject*> bound;
  if (!bind_arguments(*operation, all, kwnames, &bound)) {
    PyErr_Clear();
    return broke(BreakReason::kLeafRaised, operation->name);
  }
  return record(*operation, target.get(), bound);
}

Result<Ref> FakeTracer::operate(PyObject* function,
                                const std::vector<PyObject*>& operands) {
  bool any_tensor = false, any_sym = false;
  for (PyObject* operand : operands) {
    any_tensor = any_tensor || is_tensor(operand);
    any_sym = any_sym || is_sym(operand);
  }
  PyObject* self;
  if (any_tensor) {
    const Operation* operation = operation_of(function, &self);
    if (!operation)
      return broke(PyCFunction_Check(function)
                       ? BreakReason::kDataDependentValue
                       : BreakReason::kUnknownOperation,
                   object_text(function));
    std::vector<PyObject*> bound;
    if (!bind_arguments(*operation, operands, nullptr, &bound)) {
      PyErr_Clear();
      return broke(BreakReason::kLeafRaised, operation->name);
    }
    return record(*operation, function, bound);
  }
  std::string name =
      PyCFunction_Check(function)
          ? reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name
          : "";
  FJ_CHECK(any_sym, "an operand must be foreign");
  return sym_operate(name, function, operands);
}

Result<std::optional<FunctionOverride>> FakeTracer::find_override(
    PyObject* callable, const std::vector<PyObject*>& args, PyObject* kwnames) {
  PyObject* self;
  const Operation* operation = operation_of(callable, &self);
  if (!operation) return std::optional<FunctionOverride>();
  std::vector<PyObject*> all = args;
  if (self) all.insert(all.begin(), self);
  OverriddenCall call = overridden_call(*operation, all, kwnames);
  if (!call.function) return Result<std::optional<FunctionOverride>>::raised();
  return std::optional<FunctionOverride>(
      {call.function, call.types, call.args, call.kwargs});
}

// ---- attributes of stand-ins

Result<Ref> FakeTracer::get_attribute(PyObject* object, PyObject* name) {
  std::string key = string_text(name);
  Impl* impl = impl_of(object);
  Trace* trace = impl->trace.get();
  if (key == "shape") {
    Ref tuple = Ref::steal(PyTuple_New(trace->sizes.size()));
    for (size_t i = 0; tuple && i < trace->sizes.size(); ++i) {
      FJ_TRY(Ref size, make_symbolic(trace->sizes[i]));
      PyTuple_SET_ITEM(tuple.get(), i, size.release());
    }
    return from_api(tuple.release());
  }
  if (key == "ndim") return from_api(PyLong_FromLongLong(impl->dim));
  if (key == "requires_grad")
    return Ref::borrow(impl->requires_grad() ? Py_True : Py_False);
  if (key == "dtype") return from_api(PyLong_FromLong(impl->dtype));
  if (key == "__bool__")
    return broke(BreakReason::kDataDependentBranch, "bool() of a tensor");
  if (key == "grad") {
    if (!trace->source) return Ref::borrow(Py_None);
    Ref grad = Ref::steal(gradient(trace->real.get()));
    const Source* source =
        guards_->sources().make(SourceKind::kTensorGrad, trace->source);
    if (grad.get() == Py_None) {
      guards_->add(GuardKind::kIs, source, Py_None);
      return grad;
    }
    return stand_in(grad.get(), source, {});
  }
  return from_api(PyObject_GenericGetAttr(object, name));
}

Result<Ref> FakeTracer::set_attribute(PyObject*, PyObject* name, PyObject*) {
  return broke(BreakReason::kUnsupportedWrite,
               "tensor attribute " + string_text(name));
}

Result<bool> FakeTracer::is_instance(PyObject* stand_in, PyObject* type) {
  int yes = PyObject_IsInstance(stand_in, type);
  if (yes < 0) return Result<bool>::raised();
  return yes == 1;
}

// ---- recording

Result<NodeArgument> FakeTracer::argument(PyObject* object) {
  NodeArgument argument;
  if (is_tensor(object)) {
    if (classify(object) != ObjectClass::kStandIn)
      return broke(BreakReason::kUnknownTensor, "a tensor no input leads to");
    argument.kind = NodeArgument::Kind::kNode;
    argument.node = impl_of(object)->trace->node;
    return argument;
  }
  if (is_sym(object)) {
    argument.kind = NodeArgument::Kind::kExpr;
    argument.expr = expr_in(object);
    return argument;
  }
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) {
    argument.kind = PyTuple_CheckExact(object) ? NodeArgument::Kind::kTuple
                                               : NodeArgument::Kind::kList;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      FJ_TRY(NodeArgument item,
             this->argument(PySequence_Fast_GET_ITEM(object, i)));
      argument.items.push_back(std::move(item));
    }
    return argument;
  }
  argument.kind = NodeArgument::Kind::kObject;
  argument.object = Ref::borrow(object);
  return argument;
}

int64_t FakeTracer::hint(const Expr& expr) const {
  return expr.evaluate(guards_->hints().data());
}

bool FakeTracer::same_size(const Expr& a, const Expr& b) {
  if (a == b) return true;
  Expr equal = expr_eq(a, b);
  bool same = hint(equal) != 0;
  guards_->add_expr(same ? equal : expr_not(equal));
  return same;
}

Result<std::vector<Expr>> FakeTracer::size_list(PyObject* object) {
  Ref items = Ref::steal(PyTuple_Check(object) || PyList_Check(object)
                             ? PySequence_Tuple(object)
                             : PyTuple_Pack(1, object));
  if (!items) return Result<std::vector<Expr>>::raised();
  std::vector<Expr> sizes;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) {
    PyObject* item = PyTuple_GET_ITEM(items.get(), i);
    if (is_sym(item)) {
      sizes.push_back(expr_in(item));
    } else if (PyLong_Check(item)) {
      sizes.push_back(Expr(PyLong_AsLongLong(item)));
    } else {
      return broke(BreakReason::kLeafRaised, "a size that is no int");
    }
  }
  return sizes;
}

Result<std::vector<Expr>> FakeTracer::shape_of(
    const Operation& operation, const std::vector<PyObject*>& bound) {
  auto sizes_of = [](PyObject* object) {
    return is_stand_in(object) ? impl_of(object)->trace->sizes
                               : std::vector<Expr>{};
  };
  std::vector<Expr> first = sizes_of(bound[0]), out;
  switch (operation.shape) {
    case Shape::kBroadcast: {
      for (PyObject* operand : bound) {
        std::vector<Expr> sizes = sizes_of(operand);
        if (sizes.size() > out.size())
          out.insert(out.begin(), sizes.size() - out.size(), Expr(1));
        for (size_t i = 0; i < sizes.size(); ++i) {
          Expr& to = out[out.size() - sizes.size() + i];
          if (sizes[i].is_const(1)) continue;
          if (to.is_const(1))
            to = sizes[i];
          else if (!same_size(to, sizes[i]))
            return broke(BreakReason::kLeafRaised, "sizes do not match");
        }
      }
      return out;
    }
    case Shape::kReduce: {
      if (!bound[1] || bound[1] == Py_None) return out;
      if (!PyLong_Check(bound[1]))
        return broke(BreakReason::kLeafRaised, "dim must be an int");
      int64_t dim = PyLong_AsLongLong(bound[1]);
      int64_t count = static_cast<int64_t>(first.size());
      if (dim < 0) dim += count;
      if (dim < 0 || dim >= count)
        return broke(BreakReason::kLeafRaised, "dim out of range");
      first.erase(first.begin() + dim);
      return first;
    }
    case Shape::kMatmul: {
      std::vector<Expr> second = sizes_of(bound[1]);
      if (first.size() != 2 || second.size() != 2 ||
          !same_size(first[1], second[0]))
        return broke(BreakReason::kLeafRaised, "matmul sizes do not match");
      return std::vector<Expr>{first[0], second[1]};
    }
    case Shape::kReshape: {
      FJ_TRY(std::vector<Expr> sizes, size_list(bound[1]));
      Expr total = 1, known = 1;
      for (const Expr& size : first) total = total * size;
      int wild = -1;
      for (size_t i = 0; i < sizes.size(); ++i) {
        if (sizes[i].is_const(-1))
          wild = static_cast<int>(i);
        else
          known = known * sizes[i];
      }
      if (wild >= 0) {
        sizes[wild] = floor_div(total, known);
        known = known * sizes[wild];
      }
      if (!same_size(total, known))
        return broke(BreakReason::kLeafRaised, "wrong number of elements");
      return sizes;
    }
    case Shape::kTranspose:
      std::reverse(first.begin(), first.end());
      return first;
    case Shape::kSame:
      return first;
    case Shape::kFactory:
      return size_list(bound[0]);
    case Shape::kOpaque:
      break;
  }
  return broke(operation.in_place ? BreakReason::kUnknownOperation
                                  : BreakReason::kDataDependentValue,
               operation.name);
}

Result<Ref> FakeTracer::record(const Operation& operation, PyObject* callable,
                               const std::vector<PyObject*>& bound) {
  FakeNode node;
  node.callable = Ref::borrow(callable);
  node.name = operation.name;
  node.span = location_;
  bool requires_grad = false;
  for (PyObject* object : bound) {
    FJ_TRY(NodeArgument argument, this->argument(object ? object : Py_None));
    node.args.push_back(std::move(argument));
    if (object && is_tensor(object))
      requires_grad = requires_grad || impl_of(object)->requires_grad();
  }
  FJ_TRY(std::vector<Expr> sizes, shape_of(operation, bound));
  if (operation.in_place) {
    if (!is_stand_in(bound[0]))
      return broke(BreakReason::kLeafRaised, operation.name);
    int target = impl_of(bound[0])->trace->node;
    std::vector<int>& mutated = graph_->mutated;
    if (graph_->nodes[target].input >= 0 &&
        std::find(mutated.begin(), mutated.end(), target) == mutated.end())
      mutated.push_back(target);
    graph_->nodes.push_back(std::move(node));
    return Ref::borrow(bound[0]);
  }
  std::vector<int64_t> hints;
  for (const Expr& size : sizes) hints.push_back(hint(size));
  Ref object = make_tensor(g_tensor, hints);
  if (!object) return Result<Ref>::raised();
  Impl* impl = impl_of(object.get());
  impl->set_requires_grad(requires_grad && g_grad_enabled &&
                          node.name != "detach");
  impl->trace = std::make_unique<Trace>();
  impl->trace->capture = capture_;
  impl->trace->node = static_cast<int>(graph_->nodes.size());
  impl->trace->sizes = std::move(sizes);
  graph_->nodes.push_back(std::move(node));
  return object;
}

// ---- entry points of the fake objects' own slots

bool has_stand_in(PyObject* const* arguments, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    PyObject* object = arguments[i];
    if (!object) continue;
    if (is_stand_in(object) || is_sym(object)) return true;
    if (PyTuple_CheckExact(object) || PyList_CheckExact(object)) {
      if (has_stand_in(PySequence_Fast_ITEMS(object),
                       static_cast<size_t>(PySequence_Fast_GET_SIZE(object))))
        return true;
    }
  }
  return false;
}

namespace {
bool active_or_error() {
  if (g_active) return true;
  PyErr_SetString(PyExc_RuntimeError, "a stand-in outlived its capture");
  return false;
}
}  // namespace

PyObject* trace_operation(PyObject* callable,
                          const std::vector<PyObject*>& args) {
  if (!active_or_error()) return nullptr;
  std::vector<PyObject*> given;
  for (PyObject* argument : args) {
    if (!argument) break;
    given.push_back(argument);
  }
  PyObject* self;
  bool tensor_operation =
      operation_of(callable, &self) &&
      g_active->classify_callee(callable) == CalleeClass::kLeaf;
  return g_active->to_c(tensor_operation
                            ? g_active->call(callable, given, nullptr)
                            : g_active->operate(callable, given));
}

PyObject* trace_attribute(PyObject* object, const char* name) {
  if (!active_or_error()) return nullptr;
  Ref key = Ref::steal(PyUnicode_FromString(name));
  return key ? g_active->to_c(g_active->get_attribute(object, key.get()))
             : nullptr;
}

bool sym_bool(PyObject* sym, bool* out) {
  if (!active_or_error()) return false;
  Ref value = Ref::steal(g_active->to_c(g_active->concretise(sym)));
  if (!value) return false;
  *out = PyObject_IsTrue(value.get()) == 1;
  return true;
}

PyObject* sym_int(PyObject* sym) {
  if (!active_or_error()) return nullptr;
  Ref value = Ref::steal(g_active->to_c(g_active->concretise(sym)));
  return value ? PyNumber_Index(value.get()) : nullptr;
}

}  // namespace framejit::fake
