"""The console: one page at the admin port that shows tables, streams, calls and faults."""

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Embedded BigQuery</title>
<style>
  body { font: 14px/1.5 system-ui, sans-serif; margin: 2em; max-width: 70em; }
  table { border-collapse: collapse; margin-bottom: 2em; }
  th, td { border-bottom: 1px solid #ccc; padding: .2em .8em .2em 0; text-align: left; }
  td.number { text-align: right; font-variant-numeric: tabular-nums; }
  #error { color: #b00; }
</style>
<h1>Embedded BigQuery</h1>
<p id="error"></p>
<h2>Tables</h2><table id="tables"></table>
<h2>Write streams</h2><table id="streams"></table>
<h2>Faults</h2><table id="faults"></table>
<h2>Calls</h2><table id="counters"></table>
<script>
  const columns = {
    tables: ["table", "kind", "rows", "bytes"],
    streams: ["name", "kind", "rows", "flushed", "finalized", "committed", "expired"],
    faults: ["id", "method", "action", "code", "when", "nth", "times", "hits"],
    counters: ["name", "count"],
  };
  // Names come from whoever uses the server, so they are only ever set as text.
  function show(id, rows) {
    const table = document.getElementById(id);
    table.replaceChildren();
    const head = table.insertRow();
    for (const name of columns[id]) {
      const cell = document.createElement("th");
      cell.textContent = name;
      head.append(cell);
    }
    for (const row of rows) {
      const line = table.insertRow();
      for (const name of columns[id]) {
        const cell = line.insertCell();
        cell.textContent = row[name] ?? "";
        if (typeof row[name] === "number") cell.className = "number";
      }
    }
  }
  async function refresh() {
    try {
      for (const id of Object.keys(columns)) {
        let rows = await (await fetch("/" + id)).json();
        if (!Array.isArray(rows)) {
          rows = Object.entries(rows).map(([name, count]) => ({ name, count }));
        }
        show(id, rows);
      }
      document.getElementById("error").textContent = "";
    } catch (error) {
      document.getElementById("error").textContent = "The server does not answer.";
    }
    setTimeout(refresh, 1000);
  }
  refresh();
</script>
</html>
"""
