#include "graph/tracing/captured_block.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/Exceptions.h>

#include <optional>

#include "graph/tracing/ambient_state.h"
#include "graph/tracing/block_runner.h"

namespace framejit::graph {

namespace {

struct BlockObject {
  PyObject_HEAD std::shared_ptr<TorchGraph>* graph;
};

PyObject* block_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  HANDLE_TH_ERRORS
  const TorchGraph& graph = **reinterpret_cast<BlockObject*>(self)->graph;
  TORCH_CHECK(!kwargs && static_cast<size_t>(PyTuple_GET_SIZE(args)) ==
                             graph.graph->inputs.size(),
              "a captured block called with other arguments than captured");
  std::vector<Ref> inputs;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i)
    inputs.push_back(Ref::borrow(PyTuple_GET_ITEM(args, i)));
  std::vector<Ref> outputs;
  {
    // The graph's own state writes end with it.
    StateScope state(graph.writes_state, /*keep_casts=*/true);
    outputs = run_block(graph, inputs);
  }
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(outputs.size()));
  if (!tuple) throw python_error();
  for (size_t i = 0; i < outputs.size(); ++i)
    PyTuple_SET_ITEM(tuple, i, outputs[i].release());
  return tuple;
  END_HANDLE_TH_ERRORS
}

void block_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<BlockObject*>(self)->graph;
  type->tp_free(self);
  Py_DECREF(type);
}

// Backends copy modules; the captured graph is shared.
PyObject* block_copy(PyObject* self, PyObject*) { return Py_NewRef(self); }

PyMethodDef kBlockMethods[] = {{"__copy__", block_copy, METH_NOARGS, nullptr},
                               {"__deepcopy__", block_copy, METH_O, nullptr},
                               {nullptr, nullptr, 0, nullptr}};

PyTypeObject* block_type() {
  static PyTypeObject* type = made_once([] {
    static PyType_Slot slots[] = {
        {Py_tp_call, reinterpret_cast<void*>(block_call)},
        {Py_tp_dealloc, reinterpret_cast<void*>(block_dealloc)},
        {Py_tp_methods, kBlockMethods},
        {0, nullptr}};
    static PyType_Spec spec = {"framejit.CapturedBlock", sizeof(BlockObject), 0,
                               Py_TPFLAGS_DEFAULT, slots};
    return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  });
  FJ_CHECK(type, "the type of captured blocks");
  return type;
}

}  // namespace

Ref make_captured_block(std::shared_ptr<TorchGraph> graph) {
  Ref object = Ref::steal(block_type()->tp_alloc(block_type(), 0));
  FJ_CHECK(object, "no memory");
  reinterpret_cast<BlockObject*>(object.get())->graph =
      new std::shared_ptr<TorchGraph>(std::move(graph));
  return object;
}

}  // namespace framejit::graph
