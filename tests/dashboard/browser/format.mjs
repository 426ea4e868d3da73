// The format of the page's own code: prettier's, also inside of the templates. With GRIDHOOK_WRITE the files are written.
//
// Templates of htm have the rules of JSX for spaces and lines, not those of HTML. So they are formatted as JSX:
// a file is rewritten with JSX instead of its templates, formatted, and rewritten back.
import fs from 'node:fs';
import path from 'node:path';
import * as prettier from 'prettier';
import ts from 'typescript';

const OPTIONS = { printWidth: 120, singleQuote: true };
const INDENT = '  ';

/** The source with edits: `[from, to, text]`, none inside of another one. */
function edited(source, edits, from = 0, to = source.length) {
  let text = '';
  let at = from;
  for (const [start, end, part] of edits.sort((a, b) => a[0] - b[0])) {
    text += source.slice(at, start) + part;
    at = end;
  }
  return text + source.slice(at, to);
}

/** The outermost nodes below `node` for which `find` has a replacement, as edits. */
function replacements(node, find) {
  const edits = [];
  const visit = (child) => {
    const part = find(child);
    if (part === undefined) ts.forEachChild(child, visit);
    else edits.push(part);
  };
  ts.forEachChild(node, visit);
  return edits;
}

const parse = (name, source) => ts.createSourceFile(name, source, ts.ScriptTarget.Latest, true, ts.ScriptKind.JSX);

// --- from templates to JSX ---

const isTemplate = (node) =>
  ts.isTaggedTemplateExpression(node) && ts.isIdentifier(node.tag) && node.tag.text === 'html';

/** What begins at a place in the markup of a template: a hole is `\u0001number\u0002`. */
const HOLE = /^\u0001(\d+)\u0002/;
const TOKENS = {
  close: /^<\/(?:\/|\u0001\d+\u0002|[\w.-]+)\s*>/,
  open: /^<(\u0001\d+\u0002|[\w.-]+)/,
  end: /^\s*(\/?)>/,
  spread: /^\s*\.\.\.\u0001(\d+)\u0002/,
  attribute: /^(\s*)([^\s=/>"']+)(?:=(\u0001\d+\u0002|"[^"\u0001]*"|'[^'\u0001]*'))?/,
};

/** A template as JSX, with `holes` as the texts of its expressions. */
function markupToJsx(markup, holes) {
  const open = [];
  let jsx = '';
  let rest = markup;
  const take = (pattern) => {
    const match = pattern.exec(rest);
    if (match) rest = rest.slice(match[0].length);
    return match;
  };
  const nameOf = (text) => (HOLE.test(text) ? holes[Number(HOLE.exec(text)[1])] : text);
  const isAttributeHole = (text) => text?.startsWith('\u0001');
  const takeTag = (name) => {
    jsx += `<${name}`;
    for (;;) {
      const end = take(TOKENS.end);
      if (end) {
        jsx += end[1] ? ' />' : '>';
        if (!end[1]) open.push(name);
        return;
      }
      const spread = take(TOKENS.spread);
      if (spread) {
        jsx += ` {...${holes[Number(spread[1])]}}`;
        continue;
      }
      const attribute = take(TOKENS.attribute);
      if (!attribute) throw new Error(`an attribute of <${name}> cannot be read: ${rest.slice(0, 60)}`);
      const [, , key, value] = attribute;
      jsx += ` ${key}`;
      if (value) jsx += isAttributeHole(value) ? `={${holes[Number(HOLE.exec(value)[1])]}}` : `=${value}`;
    }
  };
  while (rest) {
    const hole = take(HOLE);
    const close = !hole && take(TOKENS.close);
    const tag = !hole && !close && take(TOKENS.open);
    if (hole) jsx += `{${holes[Number(hole[1])]}}`;
    else if (close) jsx += `</${open.pop()}>`;
    else if (tag) takeTag(nameOf(tag[1]));
    else {
      jsx += '{}<>'.includes(rest[0]) ? `{'${rest[0]}'}` : rest[0];
      rest = rest.slice(1);
    }
  }
  if (open.length > 0) throw new Error(`<${open.pop()}> is not closed: ${markup.slice(0, 60)}`);
  return jsx;
}

/** Whether markup is one element and nothing else, so that it needs no fragment. */
function isOneElement(jsx) {
  const source = parse('one.jsx', `(${jsx})`);
  const [statement] = source.statements;
  const isWhole =
    source.statements.length === 1 &&
    ts.isExpressionStatement(statement) &&
    ts.isParenthesizedExpression(statement.expression);
  const inner = isWhole ? statement.expression.expression : undefined;
  const isElement = inner && (ts.isJsxElement(inner) || ts.isJsxSelfClosingElement(inner));
  return Boolean(isElement) && source['parseDiagnostics'].length === 0;
}

function templateToJsx(source, node) {
  const { template } = node;
  const inner = (expression) =>
    templatesToJsx(source, expression, expression.getFullStart(), expression.getEnd()).trim();
  if (ts.isNoSubstitutionTemplateLiteral(template)) return wrapped(markupToJsx(template.rawText, []));
  const holes = template.templateSpans.map((span) => inner(span.expression));
  const markup = template.templateSpans.reduce(
    (text, span, index) => `${text}\u0001${index}\u0002${span.literal.rawText}`,
    template.head.rawText,
  );
  return wrapped(markupToJsx(markup, holes));
}

function wrapped(jsx) {
  // Spaces with a line are none; others are text beside the element.
  const element = jsx.replace(/^\s*\n\s*|\s*\n\s*$/g, '');
  const hasSpace = element !== element.trim();
  return !hasSpace && isOneElement(element) ? element : `<>${jsx}</>`;
}

function templatesToJsx(source, node, from, to) {
  const find = (child) =>
    isTemplate(child) ? [child.getStart(), child.getEnd(), templateToJsx(source, child)] : undefined;
  const own = find(node);
  return edited(source, own ? [own] : replacements(node, find), from, to);
}

// --- and back ---

const isJsx = (node) => ts.isJsxElement(node) || ts.isJsxSelfClosingElement(node) || ts.isJsxFragment(node);
const isComponent = (name) => /^[A-Z]|\./.test(name);

/** The markup of an element as a template has it. */
function jsxToMarkup(source, node) {
  if (ts.isJsxFragment(node)) return node.children.map((child) => childToMarkup(source, child)).join('');
  const opening = ts.isJsxElement(node) ? node.openingElement : node;
  const name = opening.tagName.getText();
  const edits = replacements(opening, (child) => {
    if (child === opening.tagName)
      return isComponent(name)
        ? [child.getStart(), child.getEnd(), `\${${name}}`]
        : [child.getStart(), child.getEnd(), name];
    if (ts.isJsxSpreadAttribute(child))
      return [child.getStart(), child.getEnd(), `...\${${jsxToTemplates(source, child.expression)}}`];
    if (ts.isJsxExpression(child)) return [child.getStart(), child.getEnd(), expressionToHole(source, child)];
    return undefined;
  });
  const head = edited(source, edits, opening.getStart(), opening.getEnd());
  if (!ts.isJsxElement(node)) return head;
  const close = isComponent(name) ? '<//>' : `</${name}>`;
  return head + node.children.map((child) => childToMarkup(source, child)).join('') + close;
}

function expressionToHole(source, node) {
  const inside = source.slice(node.getStart() + 1, node.getEnd() - 1);
  if (!node.expression) throw new Error(`an empty expression: ${inside}`);
  const find = (child) => jsxEdit(source, child);
  const own = find(node.expression);
  return `\${${edited(source, own ? [own] : replacements(node.expression, find), node.getStart() + 1, node.getEnd() - 1)}}`;
}

function childToMarkup(source, child) {
  if (ts.isJsxText(child)) return source.slice(child.getFullStart(), child.getEnd());
  if (ts.isJsxExpression(child)) return expressionToHole(source, child);
  return jsxToMarkup(source, child);
}

/** JSX in code becomes a template; the parentheses and the lines around it go. */
function jsxEdit(source, node) {
  if (isJsx(node)) return [node.getStart(), node.getEnd(), `html\`${jsxToMarkup(source, node)}\``];
  if (!ts.isParenthesizedExpression(node)) return undefined;
  if (!isJsx(node.expression)) {
    // The other branch of a condition has parentheses and lines of its own, too.
    const isBranch = ts.isConditionalExpression(node.parent) && source.slice(node.getStart()).startsWith('(\n');
    if (!isBranch) return undefined;
    const inner = jsxToTemplates(source, node.expression);
    return [node.getStart(), node.getEnd(), inner.replaceAll(`\n${INDENT}`, '\n')];
  }
  const template = `html\`${jsxToMarkup(source, node.expression)}\``;
  return [node.getStart(), node.getEnd(), template.replaceAll(`\n${INDENT}`, '\n')];
}

function jsxToTemplates(source, node) {
  const find = (child) => jsxEdit(source, child);
  const own = find(node);
  return edited(source, own ? [own] : replacements(node, find), node.getStart(), node.getEnd());
}

/** A script in prettier's format. */
export async function formatScript(source) {
  const tree = parse('page.jsx', source);
  const jsx = await prettier.format(templatesToJsx(source, tree, 0, source.length), { ...OPTIONS, parser: 'babel' });
  const formatted = parse('page.jsx', jsx);
  return edited(
    jsx,
    replacements(formatted, (child) => jsxEdit(jsx, child)),
  );
}

/** Files of a folder with one of these ends, without those of others. */
function listFiles(folder, ends) {
  const names = fs.readdirSync(folder, { recursive: true }).map(String);
  return names
    .filter((name) => ends.includes(path.extname(name)) && !/node_modules|vendor/.test(name))
    .map((name) => path.join(folder, name));
}

const formatStyle = (source) => prettier.format(source, { ...OPTIONS, parser: 'css' });

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const wrong = [];
  for (const file of [
    ...listFiles(process.env.GRIDHOOK_PAGE, ['.js', '.css']),
    ...listFiles(process.env.GRIDHOOK_SCENES, ['.mjs']),
  ]) {
    const source = fs.readFileSync(file, 'utf8');
    const formatted = file.endsWith('.css') ? await formatStyle(source) : await formatScript(source);
    if (formatted === source) continue;
    if (process.env.GRIDHOOK_WRITE) fs.writeFileSync(file, formatted);
    const lines = formatted.split('\n');
    const at = source.split('\n').findIndex((line, index) => line !== lines[index]);
    wrong.push(`${file}:${at + 1}: expected is\n${lines[at]}`);
  }
  if (wrong.length > 0) {
    console.error(`${wrong.join('\n')}\nGRIDHOOK_WRITE=1 make test ARGS=the_code_of_the_page_is_formatted writes them`);
    process.exit(process.env.GRIDHOOK_WRITE ? 0 : 1);
  }
}
