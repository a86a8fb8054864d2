#include "bytecode/code/assembler.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "bytecode/code/opcode_table.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/program_code.h"
#include "frame_hook/python_text.h"

namespace framejit::bytecode {
namespace {

std::string_view bytes_view(PyObject* bytes) {
  return {PyBytes_AS_STRING(bytes), size_t(PyBytes_GET_SIZE(bytes))};
}

Lowering lowering_of(int opcode) {
  const OpcodeInfo& info = opcode_table()[opcode];
  return info.row ? info.row->lowering : Lowering::kNever;
}

// The same jump in the given direction, -1 when there is none.
int directed(int opcode, bool forward) {
  Lowering lowering = lowering_of(opcode);
  bool is_forward = lowering != Lowering::kBackward;
  if (is_forward == forward) return opcode;
  const OpcodeTable& table = opcode_table();
  std::string name = table[opcode].row->name;
  if (name == "JUMP_BACKWARD_NO_INTERRUPT") return table.number("JUMP_FORWARD");
  const char* from = forward ? "BACKWARD" : "FORWARD";
  const char* to = forward ? "FORWARD" : "BACKWARD";
  size_t at = name.find(from);
  if (at == std::string::npos) return -1;
  name.replace(at, std::strlen(from), to);
  return table.number(name.c_str());
}

int extended_args(unsigned arg) {
  return (arg > 0xff) + (arg > 0xffff) + (arg > 0xffffff);
}

bool choose_directions(Assembly& assembly) {
  for (size_t i = 0; i < assembly.instructions.size(); ++i) {
    Instruction& instruction = assembly.instructions[i];
    if (instruction.handler.target >= 0 &&
        assembly.labels[instruction.handler.target] < 0)
      return false;
    if (instruction.target < 0) continue;
    int target = assembly.labels[instruction.target];
    if (target < 0) return false;
    instruction.opcode = directed(instruction.opcode, target > int(i));
    if (instruction.opcode < 0) return false;
  }
  return true;
}

// Sets positions and jump operands. Operand widths only grow, so it ends.
void lay_out(Assembly& assembly) {
  auto& list = assembly.instructions;
  std::vector<int> widths(list.size());
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].target < 0) widths[i] = extended_args(list[i].arg);
  for (bool changed = true; changed;) {
    changed = false;
    int unit = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      list[i].start = unit;
      list[i].at = unit + widths[i];
      list[i].end = list[i].at + 1 + opcode_table()[list[i].opcode].caches;
      unit = list[i].end;
    }
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].target < 0) continue;
      int target = list[assembly.labels[list[i].target]].start;
      list[i].arg = std::abs(target - list[i].end);
      if (extended_args(list[i].arg) > widths[i]) {
        widths[i] = extended_args(list[i].arg);
        changed = true;
      }
    }
  }
}

std::string emit_code(const Assembly& assembly) {
  std::string out;
  const OpcodeTable& table = opcode_table();
  for (const Instruction& instruction : assembly.instructions) {
    for (int i = instruction.at - instruction.start; i > 0; --i) {
      out.push_back(static_cast<char>(table.extended_arg()));
      out.push_back(static_cast<char>(instruction.arg >> 8 * i & 0xff));
    }
    out.push_back(static_cast<char>(instruction.opcode));
    out.push_back(static_cast<char>(instruction.arg & 0xff));
    out.append(2 * size_t(instruction.end - instruction.at - 1), '\0');
  }
  return out;
}

std::string emit_handlers(const Assembly& assembly) {
  std::vector<ExceptionEntry> entries;
  HandlerLabel current;
  for (const Instruction& instruction : assembly.instructions) {
    if (!(instruction.handler == current)) {
      current = instruction.handler;
      if (current.target >= 0) {
        int target =
            assembly.instructions[assembly.labels[current.target]].start;
        entries.push_back(
            {instruction.start, 0, target, current.depth, current.lasti});
      }
    }
    if (current.target >= 0) entries.back().end = instruction.end;
  }
  return emit_exception_table(entries);
}

std::string emit_locations(const Assembly& assembly, int first_line) {
  std::vector<LocationRun> runs;
  for (const Instruction& instruction : assembly.instructions) {
    int units = instruction.end - instruction.start;
    // 3.11 writes an entry per instruction, later versions merge equal ones.
    if (PY_MINOR_VERSION >= 12 && !runs.empty() &&
        runs.back().location == instruction.location)
      runs.back().units += units;
    else
      runs.push_back({instruction.location, units});
  }
  return emit_location_table(runs, first_line);
}

// Replaces jump operands by labels; false when one points between
// instructions.
bool resolve_targets(Assembly& out, const std::vector<int>& index_at) {
  auto label_at = [&](int unit) {
    return unit >= 0 && unit < int(index_at.size()) ? index_at[unit] : -1;
  };
  for (Instruction& instruction : out.instructions) {
    if (!is_jump(instruction.opcode)) continue;
    bool backward = lowering_of(instruction.opcode) == Lowering::kBackward;
    instruction.target = label_at(
        instruction.end + (backward ? -instruction.arg : instruction.arg));
    instruction.arg = 0;
    if (instruction.target < 0) return false;
  }
  return true;
}

}  // namespace

bool is_jump(int opcode) {
  Lowering lowering = lowering_of(opcode);
  return lowering == Lowering::kForward || lowering == Lowering::kBackward ||
         lowering == Lowering::kForIter;
}

bool disassemble(PyCodeObject* code, Assembly& out) {
  Ref bytes = Ref::steal(PyCode_GetCode(code));
  if (!bytes) {
    PyErr_Clear();
    return false;
  }
  const OpcodeTable& table = opcode_table();
  std::string_view raw = bytes_view(bytes.get());
  auto locations = parse_location_table(bytes_view(code->co_linetable),
                                        code->co_firstlineno);
  int units = int(raw.size() / 2);
  std::vector<int> index_at(units, -1);
  for (int unit = 0; unit < units;) {
    Instruction instruction;
    instruction.start = unit;
    if (unit < int(locations.size())) instruction.location = locations[unit];
    unsigned arg = static_cast<unsigned char>(raw[2 * unit + 1]);
    auto opcode = [&] { return static_cast<unsigned char>(raw[2 * unit]); };
    while (opcode() == table.extended_arg()) {
      if (++unit >= units) return false;
      arg = arg << 8 | static_cast<unsigned char>(raw[2 * unit + 1]);
    }
    if (lowering_of(opcode()) == Lowering::kNever) return false;
    instruction.opcode = opcode();
    instruction.arg = int(arg);
    instruction.at = unit;
    unit += 1 + table[opcode()].caches;
    instruction.end = unit;
    index_at[instruction.start] = int(out.instructions.size());
    out.instructions.push_back(instruction);
  }
  if (!resolve_targets(out, index_at)) return false;
  for (const ExceptionEntry& entry :
       parse_exception_table(bytes_view(code->co_exceptiontable))) {
    if (entry.target >= units || index_at[entry.target] < 0) return false;
    for (Instruction& instruction : out.instructions)
      if (instruction.start >= entry.start && instruction.start < entry.end)
        instruction.handler = {index_at[entry.target], entry.depth,
                               entry.lasti};
  }
  for (size_t i = 0; i < out.instructions.size(); ++i)
    out.labels.push_back(int(i));
  return true;
}

bool assemble(Assembly& assembly, int first_line, AssembledCode& out) {
  for (int label : assembly.labels)
    if (label >= int(assembly.instructions.size())) return false;
  if (!choose_directions(assembly)) return false;
  lay_out(assembly);
  out.code = emit_code(assembly);
  out.exception_table = emit_handlers(assembly);
  out.location_table = emit_locations(assembly, first_line);
  return true;
}

Result<Ref> make_code(const CodeParts& parts, const AssembledCode& code) {
  auto bytes = [](const std::string& text) {
    return Ref::steal(
        PyBytes_FromStringAndSize(text.data(), Py_ssize_t(text.size())));
  };
  Ref instructions = bytes(code.code);
  Ref locations = bytes(code.location_table);
  Ref handlers = bytes(code.exception_table);
  if (!instructions || !locations || !handlers) return Result<Ref>::raised();
  int num_locals = int(PyTuple_GET_SIZE(parts.varnames.get()));
  return from_api(reinterpret_cast<PyObject*>(internals::new_code(
      parts.arg_count, 0, 0, num_locals, parts.stack_size, parts.flags,
      instructions.get(), parts.consts.get(), parts.names.get(),
      parts.varnames.get(), parts.freevars.get(), parts.cellvars.get(),
      parts.filename.get(), parts.name.get(), parts.qualname.get(),
      parts.first_line, locations.get(), handlers.get())));
}

namespace {

// Runs no code of the program's, whose objects may be constants of ours.
std::string constant_text(PyObject* object) {
  constexpr size_t kMost = 60;
  if (PyCode_Check(object))
    return "code of " +
           text_of(reinterpret_cast<PyCodeObject*>(object)->co_qualname);
  if (PyTuple_CheckExact(object)) {
    std::string text = "(";
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i) {
      if (i > 0) text += ", ";
      if (text.size() > kMost) return text + "...)";
      text += constant_text(PyTuple_GET_ITEM(object, i));
    }
    return text + (PyTuple_GET_SIZE(object) == 1 ? ",)" : ")");
  }
  const bool is_plain =
      object == Py_None || object == Py_Ellipsis || PyBool_Check(object) ||
      PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
      PyComplex_CheckExact(object) || PyUnicode_CheckExact(object) ||
      PyBytes_CheckExact(object);
  if (!is_plain) return std::string("<") + Py_TYPE(object)->tp_name + ">";
  Ref shown = Ref::steal(PyObject_Repr(object));
  if (!shown) PyErr_Clear();  // an int of too many digits
  std::string text = shown ? text_of(shown.get()) : "<int>";
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

std::string item_text(PyObject* tuple, int index) {
  if (index < 0 || index >= PyTuple_GET_SIZE(tuple))
    return std::to_string(index);
  PyObject* item = PyTuple_GET_ITEM(tuple, index);
  return PyUnicode_CheckExact(item) ? text_of(item) : std::to_string(index);
}

// The words of messages: for values without a name that a break holds, and for
// the parameters of what calls a compiled module.
std::string variable_text(PyCodeObject* code, int slot) {
  std::string name = item_text(code->co_localsplusnames, slot);
  if (name.starts_with(".s")) return "value " + name.substr(2);
  if (!stands_for_other(reinterpret_cast<PyObject*>(code))) return name;
  if (name == "args") return "positional arguments";
  return name == "kwargs" ? "keyword arguments" : name;
}

// The variable, name or constant that an instruction is about.
std::string operand_text(PyCodeObject* code, const Instruction& instruction) {
  const int arg = instruction.arg;
  PyObject* names = code->co_names;
  switch (opcode_table()[instruction.opcode].row->lowering) {
    case Lowering::kSlot:
      return " " + variable_text(code, arg);
    case Lowering::kSlotPair:
      return " " + variable_text(code, arg >> 4) + " " +
             variable_text(code, arg & 15);
    case Lowering::kConst:
      if (arg < PyTuple_GET_SIZE(code->co_consts))
        return " " + constant_text(PyTuple_GET_ITEM(code->co_consts, arg));
      break;
    case Lowering::kName:
      return " " + item_text(names, arg);
    case Lowering::kNameAndNull:
      return (arg & 1 ? " NULL + " : " ") + item_text(names, arg >> 1);
    case Lowering::kNameOrMethod:
      return " " + item_text(names, arg >> 1) + (arg & 1 ? " + self" : "");
    case Lowering::kSuperAttr:
      return " " + item_text(names, arg >> 2);
    default:
      break;
  }
  return arg ? " " + std::to_string(arg) : "";
}

}  // namespace

std::string dump_code(PyObject* code) {
  ErrorGuard keep_error;
  Assembly assembly;
  if (!PyCode_Check(code) ||
      !disassemble(reinterpret_cast<PyCodeObject*>(code), assembly))
    return "<bytecode that cannot be read>\n";
  std::string out;
  int line = -1;
  for (const Instruction& instruction : assembly.instructions) {
    if (instruction.location.line != line) {
      line = instruction.location.line;
      out += "line " + std::to_string(line) + "\n";
    }
    out += "  " + std::to_string(2 * instruction.at) + "  " +
           opcode_table()[instruction.opcode].row->name;
    auto offset_of = [&](int label) {
      return std::to_string(2 * assembly.instructions[label].at);
    };
    if (instruction.target >= 0)
      out += " to " + offset_of(instruction.target);
    else
      out += operand_text(reinterpret_cast<PyCodeObject*>(code), instruction);
    if (instruction.handler.target >= 0) {
      out += "  except to " + offset_of(instruction.handler.target) +
             " depth " + std::to_string(instruction.handler.depth);
      if (instruction.handler.lasti) out += " lasti";
    }
    out += "\n";
  }
  return out;
}

}  // namespace framejit::bytecode
