#include "tests/bytecode/bytecode_module.h"

#include <climits>
#include <fstream>
#include <set>
#include <sstream>

#include "bytecode/code/assembler.h"
#include "bytecode/code/code_extra.h"
#include "bytecode/code/decoder.h"
#include "bytecode/code/opcode_table.h"
#include "bytecode/residual/left_loops.h"
#include "bytecode/residual/residual.h"
#include "bytecode/residual/residual_cache.h"
#include "frame_hook/dispatch.h"
#include "tests/bytecode/residual/prefix_code.h"

namespace framejit::bytecode {
namespace {

// A failed Result as a Python exception.
template <class T>
PyObject* raise_failure(Result<T>& result) {
  if (result.broke())
    PyErr_SetString(PyExc_RuntimeError, format_break(result.brk()).c_str());
  return nullptr;
}

PyObject* optional_index(int index) {
  return index < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(index);
}

// decode(code) -> [(name, arg, arg2, object, target, offset, handler)]
PyObject* py_decode(PyObject*, PyObject* code) {
  auto decoded = decode(code);
  if (!decoded.ok()) return raise_failure(decoded);
  const DecodedCode& form = *decoded.value();
  Ref list = Ref::steal(PyList_New(0));
  for (const MicroOp& op : form.ops()) {
    PyObject* handler = Py_NewRef(Py_None);
    if (op.handler >= 0) {
      const Handler& h = form.handlers()[op.handler];
      Py_DECREF(handler);
      handler = Py_BuildValue("(iii)", h.target, h.depth, int(h.lasti));
    }
    Ref row = Ref::steal(
        Py_BuildValue("(siiONiN)", micro_op_name(op.op), op.arg, op.arg2,
                      op.object ? op.object : Py_None,
                      optional_index(op.target), op.offset, handler));
    if (!row || PyList_Append(list.get(), row.get()) < 0) return nullptr;
  }
  return list.release();
}

PyObject* py_dump(PyObject*, PyObject* code) {
  auto decoded = decode(code);
  if (!decoded.ok()) return raise_failure(decoded);
  std::string text = decoded.value()->dump() + dump_code(code);
  return PyUnicode_FromStringAndSize(text.data(), Py_ssize_t(text.size()));
}

PyObject* py_index_at(PyObject*, PyObject* args) {
  PyObject* code;
  int offset;
  if (!PyArg_ParseTuple(args, "Oi", &code, &offset)) return nullptr;
  auto decoded = decode(code);
  if (!decoded.ok()) return raise_failure(decoded);
  return PyLong_FromLong(decoded.value()->index_at(offset));
}

// row_of(number) -> name or None
PyObject* py_row_of(PyObject*, PyObject* number) {
  const OpcodeInfo& info = opcode_table()[PyLong_AsLong(number) & 255];
  if (!info.row) Py_RETURN_NONE;
  return PyUnicode_FromString(info.row->name);
}

// reassemble(code) -> (co_code, co_exceptiontable, co_linetable)
PyObject* py_reassemble(PyObject*, PyObject* code) {
  auto* object = reinterpret_cast<PyCodeObject*>(code);
  Assembly assembly;
  AssembledCode out;
  if (!disassemble(object, assembly) ||
      !assemble(assembly, object->co_firstlineno, out)) {
    PyErr_SetString(PyExc_RuntimeError, "cannot reassemble");
    return nullptr;
  }
  return Py_BuildValue(
      "(y#y#y#)", out.code.data(), Py_ssize_t(out.code.size()),
      out.exception_table.data(), Py_ssize_t(out.exception_table.size()),
      out.location_table.data(), Py_ssize_t(out.location_table.size()));
}

// analyze(code) -> {offset: depth} of what is reached; None: cannot analyse
PyObject* py_analyze(PyObject*, PyObject* object) {
  auto* code = reinterpret_cast<PyCodeObject*>(object);
  Assembly body;
  if (!disassemble(code, body)) Py_RETURN_NONE;
  int args = code->co_argcount + code->co_kwonlyargcount +
             bool(code->co_flags & CO_VARARGS) +
             bool(code->co_flags & CO_VARKEYWORDS);
  auto frames = analyze(body, code->co_nlocalsplus, args, code->co_nfreevars);
  if (!frames) Py_RETURN_NONE;
  Ref depths = Ref::steal(PyDict_New());
  for (size_t i = 0; i < frames->size(); ++i) {
    if (!(*frames)[i]) continue;
    Ref key = Ref::steal(PyLong_FromLong(2 * body.instructions[i].at));
    Ref depth = Ref::steal(PyLong_FromSize_t((*frames)[i]->stack.size()));
    if (!key || !depth ||
        PyDict_SetItem(depths.get(), key.get(), depth.get()) < 0)
      return nullptr;
  }
  return depths.release();
}

// points(code) -> [(offset, opcode name, why not or None)]
PyObject* py_points(PyObject*, PyObject* code) {
  Assembly body;
  if (!disassemble(reinterpret_cast<PyCodeObject*>(code), body))
    return PyList_New(0);
  Ref list = Ref::steal(PyList_New(0));
  for (const Instruction& instruction : body.instructions) {
    int offset = 2 * instruction.at;
    Ref item = Ref::steal(Py_BuildValue(
        "(isz)", offset, opcode_table()[instruction.opcode].row->name,
        why_not_breakable(code, offset)));
    if (!item || PyList_Append(list.get(), item.get()) < 0) return nullptr;
  }
  return list.release();
}

// loops(code) -> [offset]: where a jump comes back to and a loop begins.
PyObject* py_loops(PyObject*, PyObject* code) {
  Assembly body;
  if (!disassemble(reinterpret_cast<PyCodeObject*>(code), body))
    return PyList_New(0);
  std::set<int> headers;
  for (size_t i = 0; i < body.instructions.size(); ++i) {
    int label = body.instructions[i].target;
    int target = label < 0 ? INT_MAX : body.labels[label];
    if (target > int(i)) continue;
    int offset = 2 * body.instructions[target].at;
    if (loop_around(code, offset, {offset}) == offset) headers.insert(offset);
  }
  Ref list = Ref::steal(PyList_New(0));
  for (int offset : headers) {
    Ref item = Ref::steal(PyLong_FromLong(offset));
    if (!item || PyList_Append(list.get(), item.get()) < 0) return nullptr;
  }
  return list.release();
}

// prefix(code, offset, marker, sentinel) -> (code, stack kinds, units)
PyObject* py_prefix(PyObject*, PyObject* args) {
  PyObject *code, *marker, *sentinel;
  int offset;
  if (!PyArg_ParseTuple(args, "OiOO", &code, &offset, &marker, &sentinel))
    return nullptr;
  auto prefix = make_prefix(code, offset, marker, sentinel);
  if (!prefix.ok()) return raise_failure(prefix);
  auto list_of = [](const std::vector<int>& numbers) {
    PyObject* list = PyList_New(Py_ssize_t(numbers.size()));
    for (size_t i = 0; list && i < numbers.size(); ++i)
      PyList_SET_ITEM(list, Py_ssize_t(i), PyLong_FromLong(numbers[i]));
    return list;
  };
  return Py_BuildValue("(ONN)", prefix.value().code.get(),
                       list_of(prefix.value().stack_kinds),
                       list_of(prefix.value().original_units));
}

// residual(code, offset, [bound...], [(kind, lasti)...], whole loop=False) ->
//   (code, [(from, index)...], [resume code...])
PyObject* py_residual(PyObject*, PyObject* args) {
  PyObject *code, *bound, *stack;
  int offset, is_loop = 0;
  if (!PyArg_ParseTuple(args, "OiO!O!|p", &code, &offset, &PyList_Type, &bound,
                        &PyList_Type, &stack, &is_loop))
    return nullptr;
  FrameState state;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(bound); ++i)
    state.bound.push_back(PyObject_IsTrue(PyList_GET_ITEM(bound, i)) == 1);
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(stack); ++i) {
    int kind, lasti;
    if (!PyArg_ParseTuple(PyList_GET_ITEM(stack, i), "ii", &kind, &lasti))
      return nullptr;
    state.stack.push_back({static_cast<StackItemKind>(kind), lasti});
  }
  auto residual = make_residual(code, offset, state,
                                is_loop ? Extent::kLoop : Extent::kInstruction);
  if (!residual.ok()) return raise_failure(residual);
  Ref from = Ref::steal(PyList_New(0)), resumes = Ref::steal(PyList_New(0));
  for (ResidualArg arg : residual.value().args) {
    Ref item = Ref::steal(Py_BuildValue("(ii)", int(arg.from), arg.index));
    if (!item || PyList_Append(from.get(), item.get()) < 0) return nullptr;
  }
  for (const Ref& resume : residual.value().resume_codes)
    if (PyList_Append(resumes.get(), resume.get()) < 0) return nullptr;
  return Py_BuildValue("(OOO)", residual.value().code.get(), from.get(),
                       resumes.get());
}

// stack_kinds(code, offset) -> [int(StackKind)...]
PyObject* py_stack_kinds(PyObject*, PyObject* args) {
  PyObject* code;
  int offset;
  if (!PyArg_ParseTuple(args, "Oi", &code, &offset)) return nullptr;
  Ref list = Ref::steal(PyList_New(0));
  for (StackKind kind : stack_kinds_at(code, offset)) {
    Ref item = Ref::steal(PyLong_FromLong(int(kind)));
    if (!item || PyList_Append(list.get(), item.get()) < 0) return nullptr;
  }
  return list.release();
}

// function(code, globals): as MAKE_FUNCTION makes it, without a closure.
PyObject* py_function(PyObject*, PyObject* args) {
  PyObject *code, *globals;
  if (!PyArg_ParseTuple(args, "OO", &code, &globals)) return nullptr;
  return PyFunction_New(code, globals);
}

PyObject* py_kind(PyObject*, PyObject* code) {
  return PyUnicode_FromString(is_resume_code(code)     ? "resume"
                              : is_residual_code(code) ? "residual"
                                                       : "user");
}

PyObject* py_original_offset(PyObject*, PyObject* args) {
  PyObject* code;
  int offset;
  if (!PyArg_ParseTuple(args, "Oi", &code, &offset)) return nullptr;
  return PyLong_FromLong(original_offset(code, offset));
}

PyObject* py_release(PyObject*, PyObject* code) {
  release_residual_codes(code);
  Py_RETURN_NONE;
}

// How many generated code objects the user's code knows of, alive.
PyObject* py_num_generated(PyObject*, PyObject* code) {
  TableRegistry* extra = code_extra(code);
  auto* made = extra ? extra->find<GeneratedCodes>() : nullptr;
  size_t count = made && made->cache ? made->cache->codes.size() : 0;
  return PyLong_FromSize_t(count);
}

PyMethodDef kMethods[] = {
    {"decode", py_decode, METH_O, nullptr},
    {"dump", py_dump, METH_O, nullptr},
    {"index_at", py_index_at, METH_VARARGS, nullptr},
    {"row_of", py_row_of, METH_O, nullptr},
    {"reassemble", py_reassemble, METH_O, nullptr},
    {"analyze", py_analyze, METH_O, nullptr},
    {"points", py_points, METH_O, nullptr},
    {"loops", py_loops, METH_O, nullptr},
    {"prefix", py_prefix, METH_VARARGS, nullptr},
    {"residual", py_residual, METH_VARARGS, nullptr},
    {"stack_kinds", py_stack_kinds, METH_VARARGS, nullptr},
    {"function", py_function, METH_VARARGS, nullptr},
    {"kind", py_kind, METH_O, nullptr},
    {"original_offset", py_original_offset, METH_VARARGS, nullptr},
    {"release", py_release, METH_O, nullptr},
    {"num_generated", py_num_generated, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef kModule = {PyModuleDef_HEAD_INIT, "fj", nullptr, -1, kMethods};

std::string take_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Ref t = Ref::steal(type), v = Ref::steal(value), b = Ref::steal(traceback);
  Ref module = Ref::steal(PyImport_ImportModule("traceback"));
  Ref lines = Ref::steal(
      module ? PyObject_CallMethod(module.get(), "format_exception", "OOO",
                                   t.get(), v.get(), b ? b.get() : Py_None)
             : nullptr);
  Ref empty = Ref::steal(PyUnicode_FromString(""));
  Ref text =
      Ref::steal(lines ? PyUnicode_Join(empty.get(), lines.get()) : nullptr);
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  return utf8 ? utf8 : "an error that cannot be shown";
}

}  // namespace

std::string run_python_test(const std::string& file,
                            const std::string& function) {
  std::string path = std::string(FJ_SOURCE_DIR) + "/tests/bytecode/" + file;
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream) return "cannot read " + path;
  Ref code = Ref::steal(
      Py_CompileString(text.str().c_str(), path.c_str(), Py_file_input));
  Ref globals = Ref::steal(PyDict_New());
  Ref module = Ref::steal(PyModule_Create(&kModule));
  Ref name = Ref::steal(PyUnicode_FromString("fj_test"));
  if (!code || !globals || !module || !name) return take_error();
  if (PyModule_AddObjectRef(module.get(), "marker", token_marker()) < 0 ||
      PyDict_SetItemString(globals.get(), "fj", module.get()) < 0 ||
      PyDict_SetItemString(globals.get(), "__name__", name.get()) < 0 ||
      PyDict_SetItemString(globals.get(), "__builtins__",
                           PyEval_GetBuiltins()) < 0)
    return take_error();
  Ref done =
      Ref::steal(PyEval_EvalCode(code.get(), globals.get(), globals.get()));
  if (!done) return take_error();
  PyObject* entry = PyDict_GetItemString(globals.get(), function.c_str());
  if (!entry) return "no function " + function;
  Ref result = Ref::steal(PyObject_CallNoArgs(entry));
  if (!result) return take_error();
  if (result.get() == Py_None) return "";
  Ref shown = Ref::steal(PyObject_Str(result.get()));
  const char* utf8 = shown ? PyUnicode_AsUTF8(shown.get()) : nullptr;
  if (!utf8) return take_error();
  return utf8;
}

}  // namespace framejit::bytecode
