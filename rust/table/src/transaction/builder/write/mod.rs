//! Steps that add rows: beginning a write, which may create the table, and planning how its files are written.
//!
//! PROTOCOL.md: "Table Properties", "Data Files".

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use deltic_protocol::action::Metadata;
use deltic_protocol::constraint::{ENGINE_ADVICE, ExternalRules, Rules, check_constraints};
use deltic_protocol::feature;
use deltic_protocol::log_bounds::TableShape;
use deltic_protocol::property::Properties;
use deltic_protocol::schema::arrow::{check_extensions, check_new_geometries, from_rows_schema};
use deltic_protocol::schema::identity::{Identity, with_watermarks};
use deltic_protocol::schema::mapping::check_mapped;
use deltic_protocol::schema::{StructType, json as schema_json};
use deltic_protocol::stats::collect::IndexedColumns;
use serde_json::{Map, json};

use super::options::{Overwrites, Planned};
use super::{
    HandleCache, HandleState, Ids, Mode, PartitionOverwrite, SchemaMode, TableDefinition, Transaction,
    TransactionOptions, Write, WriteOptions,
};
use crate::error::{Error, Kind, Result};
use crate::log::LogSource;
use crate::snapshot::Snapshot;
use crate::write::conform::Conformer;
use crate::write::identity::{Identities, Numbering, exhausted, is_given};
use crate::write::layout::id_prefix;
use crate::write::options::{Compression, FileOptions};
use crate::write::plan::{WritePlan, WriteSpec};
use crate::write::rules::{RowRules, WriteRules};
use crate::write::writer;

mod overwrite;
mod rearrange;
mod schema;

impl Transaction {
    /// Begins a write of rows with `schema` into the table of `log`, which is created if it does not exist.
    ///
    /// # Errors
    /// `TableExists` if there is a table and the mode forbids it; `Invalid` if the partitioning is another, the table is
    /// append-only and the mode is not, or the columns do not fit; `Unsupported` if the table asks writers for something
    /// that deltic does not do.
    pub async fn write(
        log: &LogSource,
        cache: HandleCache,
        schema: &Schema,
        options: &WriteOptions,
        ids: &dyn Ids,
        now_ms: i64,
    ) -> Result<Self> {
        let mut transaction = Self::for_write(log, options, now_ms)?;
        transaction.txn_id = ids.unique();
        // A write that replaces rows must read them, and the newest `txn` action of an application needs the newest version.
        let reads_nothing = options.mode == Mode::Append && options.app_id.is_none();
        if let Some(state) = cache.state.filter(|_| reads_nothing) {
            transaction.base.state = Some(state);
            transaction.base.latest.clone_from(&cache.latest);
            if transaction.plan_in_mode(schema, options, ids).is_ok() {
                return Ok(transaction);
            }
            transaction = Self { txn_id: transaction.txn_id, ..Self::for_write(log, options, now_ms)? };
        }
        transaction.base.latest = cache.latest;
        match find(log, transaction.base.latest.as_ref()).await? {
            Some(_) if options.mode == Mode::Error => return Err(transaction.in_table(Error::table_exists())),
            Some(snapshot) if options.mode == Mode::Ignore => {
                transaction.already_committed_version = Some(snapshot.version());
                return Ok(transaction);
            }
            Some(snapshot) => transaction.set_base(HandleState::load(&snapshot).await?, &snapshot),
            None => transaction.define_for_rows(schema, options, ids, now_ms).map_err(|e| transaction.in_table(e))?,
        }
        transaction.plan_in_mode(schema, options, ids).map_err(|e| transaction.in_table(e))?;
        transaction.check_already_committed().await?;
        Ok(transaction)
    }

    /// A write before it is known whether the table exists.
    fn for_write(log: &LogSource, options: &WriteOptions, now_ms: i64) -> Result<Self> {
        let begin = TransactionOptions {
            operation: "WRITE".to_owned(),
            parameters: Map::new(),
            isolation: None,
            user_metadata: options.user_metadata.clone(),
            commit_info: options.commit_info.clone(),
            app_id: options.app_id.clone(),
            app_version: options.app_version,
            metrics: Map::new(),
            commit_empty: true,
        };
        let (mode, file_options) = (options.mode, options.files.clone());
        let engine_evaluates = options.engine_evaluates;
        let write = Write { is_write: true, mode, file_options, engine_evaluates, ..Write::default() };
        Ok(Self { write, now_ms: Some(now_ms), ..Self::new(log, begin)? })
    }

    /// Makes the transaction one that creates a table for rows with `schema`.
    fn define_for_rows(&mut self, schema: &Schema, options: &WriteOptions, ids: &dyn Ids, now_ms: i64) -> Result<()> {
        if options.rearrange_only {
            return Err(Error::invalid("data_change=False needs an existing table; leave it out"));
        }
        check_new_geometries(schema.fields(), &StructType::default())?;
        let definition = TableDefinition {
            schema: from_rows_schema(schema)?,
            partition_by: options.partition_by.clone().unwrap_or_default(),
            properties: options.properties.clone(),
            name: options.name.clone(),
            description: options.description.clone(),
            ..TableDefinition::default()
        };
        "CREATE TABLE AS SELECT".clone_into(&mut self.options.operation);
        self.define(definition, ids, now_ms)
    }

    /// Checks a write against the table, or the one to be, and plans it.
    fn plan_in_mode(&mut self, schema: &Schema, options: &WriteOptions, ids: &dyn Ids) -> Result<()> {
        // Some tables can be created, but deltic cannot write rows to them.
        self.check_writable()?;
        self.write.rearrange_only = options.rearrange_only;
        options.check()?;
        if self.base.state.is_some() {
            match (options.mode, options.partition_overwrite) {
                (Mode::Overwrite, _) if options.replace_where.is_some() => {
                    self.check_replaceable()?;
                    self.write.replace_where_pending.clone_from(&options.replace_where);
                }
                (Mode::Overwrite, PartitionOverwrite::Static) => self.overwrite()?,
                (Mode::Overwrite, PartitionOverwrite::Dynamic) => self.overwrite_partitions()?,
                (Mode::Append | Mode::Error | Mode::Ignore, _) => {}
            }
            self.evolve(schema, options, ids)?;
            check_existing(&*self.shape_after()?, options)?;
        }
        self.write.replace_where.clone_from(&options.replace_where);
        // The members of operationParameters are strings, and this one is JSON in a string, as Spark writes it.
        let partition_by = json!(self.planned(schema)?.plan.spec.partition_columns).to_string();
        self.history.parameters.insert("mode".to_owned(), json!(options.mode.as_str()));
        self.history.parameters.insert("partitionBy".to_owned(), json!(partition_by));
        if options.partition_overwrite == PartitionOverwrite::Dynamic {
            self.history.parameters.insert("isDynamicPartitionOverwrite".to_owned(), json!(true));
        }
        if let Some(predicate) = &options.replace_where {
            self.history.parameters.insert("predicate".to_owned(), json!(predicate));
        }
        let evolves = match options.schema_mode {
            Some(SchemaMode::Merge) => Some("canMergeSchema"),
            Some(SchemaMode::Overwrite) => Some("canOverwriteSchema"),
            None => None,
        };
        self.history.parameters.extend(evolves.map(|name| (name.to_owned(), json!(true))));
        Ok(())
    }

    /// From now on, the engine that has the rows evaluates the rules of the table that deltic cannot evaluate.
    pub fn let_engine_evaluate(&mut self) {
        self.write.engine_evaluates = true;
        self.derived.write_plan = None;
    }

    /// How to write files of rows with `schema`, which is checked against the table's.
    ///
    /// # Errors
    /// `Invalid` if the columns do not fit, `Corrupt` for a property that cannot be read.
    pub fn plan_write(&mut self, schema: &Schema) -> Result<WritePlan> {
        let planned = self.planned(schema)?;
        planned.is_used = true;
        Ok(planned.plan.clone())
    }

    /// Checks that rows with `schema` can be written. The plan is kept for [`Transaction::plan_write`].
    ///
    /// # Errors
    /// Those of [`Transaction::plan_write`].
    pub fn check_rows(&mut self, schema: &Schema) -> Result<()> {
        self.planned(schema).map(drop)
    }

    fn planned(&mut self, schema: &Schema) -> Result<&mut Planned> {
        if self.files.only_file_actions.is_some() {
            let message = "the transaction adds files of the table again already; write rows in another one";
            return Err(self.in_table(Error::invalid(message)));
        }
        // A plan with identity columns is not used again: rows may have been written with its numbers.
        let fits = |planned: &Planned| {
            planned.rows == *schema && (planned.plan.spec.identities.is_empty() || !planned.is_used)
        };
        let planned = match self.derived.write_plan.take().filter(fits) {
            Some(planned) => planned,
            None => {
                let plan = self.plan_of(schema).map_err(|e| self.in_table(e))?;
                Planned { rows: schema.clone(), plan, is_used: false }
            }
        };
        Ok(self.derived.write_plan.insert(planned))
    }

    fn plan_of(&mut self, schema: &Schema) -> Result<WritePlan> {
        let shape = self.shape_after()?;
        let mut spec = self.file_spec(&shape)?;
        spec.identities = self.identity_columns(&shape.schema, schema)?;
        let mut rules = self.write_rules()?;
        if self.write.engine_evaluates {
            rules.external = external_rules(&shape, &rules, schema)?;
        }
        spec.rules = Some(rules);
        let replaces_all_rows = matches!(self.write.overwrites, Overwrites::Table);
        check_columns(&shape, &spec, (schema, replaces_all_rows)).map_err(|e| with_advice(e, &shape, &spec, schema))?;
        spec.rearrange_only = self.write.rearrange_only;
        spec.replace_where.clone_from(&self.write.replace_where);
        spec.id_prefix = self.id_prefix();
        writer::check(&spec)?;
        Ok(WritePlan { location: self.log.location().to_owned(), txn_id: self.txn_id.clone(), spec })
    }
}

impl Transaction {
    /// How files are written for the table after the commit, whose columns are `shape`.
    ///
    /// # Errors
    /// `Corrupt` for a property that cannot be read.
    pub(super) fn file_spec(&self, shape: &TableShape) -> Result<WriteSpec> {
        let (protocol, metadata) = self.protocol_and_metadata()?;
        let mut spec = write_spec(shape, metadata, &self.write.file_options)?;
        spec.materializes_partition_columns = feature::materializes_partition_columns(protocol, metadata)?;
        spec.shreds_variants = feature::shreds_variants(protocol, metadata)?;
        spec.clustering = self.clustering().to_vec();
        Ok(spec)
    }

    /// The beginning of the ids in the names of the files that a plan of [`Transaction::plan_write`] writes.
    pub(crate) fn id_prefix(&self) -> Option<u64> {
        id_prefix(&self.txn_id)
    }

    /// The table's rules for new rows.
    pub(super) fn write_rules(&self) -> Result<WriteRules> {
        let constraints = check_constraints(Properties::of(self.protocol_and_metadata()?.1));
        let now = self.now_ms.map(|ms| ms.saturating_mul(1000));
        Ok(WriteRules { constraints, now, external: ExternalRules::default() })
    }

    /// The table's rules for rows that are changed at this time, in milliseconds since the epoch.
    ///
    /// # Errors
    /// `Internal` if there is no table, which callers have checked before.
    pub(crate) fn write_rules_at(&self, now_ms: i64) -> Result<WriteRules> {
        let rules = self.write_rules()?;
        Ok(WriteRules { now: rules.now.or(Some(now_ms.saturating_mul(1000))), ..rules })
    }

    /// How the identity columns that `rows` lacks are numbered, after the numbers that were assigned already.
    fn identity_columns(&self, schema: &StructType, rows: &Schema) -> Result<Vec<Numbering>> {
        let mut identity_columns = Vec::new();
        for field in &schema.fields {
            let Some(mut identity) = Identity::of(field)? else { continue };
            if let Some(last) = self.files.added.high_water_mark(&field.name, identity.step) {
                identity.watermark =
                    identity.watermark.map(|watermark| identity.further(watermark, last)).or(Some(last));
            }
            let column = field.name.clone();
            let Identity { step, allows_explicit, .. } = identity;
            // If the rows have the column, and may have it, it is not numbered.
            let first = match identity.next() {
                Some(first) => first,
                None if is_given(&column, rows.fields()) => identity.start,
                None => return Err(exhausted(&column)),
            };
            identity_columns.push(Numbering { column, first, step, allows_explicit });
        }
        identity_columns.retain(|numbering| !numbering.allows_explicit || !is_given(&numbering.column, rows.fields()));
        Ok(identity_columns)
    }

    /// The metadata with the last assigned numbers, if there are any.
    pub(super) fn metadata_with_identity_watermarks(&self) -> Result<Option<Metadata>> {
        if !self.files.added.has_identities() {
            return Ok(None);
        }
        let (_, metadata) = self.protocol_and_metadata()?;
        let schema = metadata.schema()?;
        let mut watermarks = BTreeMap::new();
        for field in &schema.fields {
            if let Some(identity) = Identity::of(field)? {
                watermarks.extend(
                    self.files.added.high_water_mark(&field.name, identity.step).map(|last| (field.name.clone(), last)),
                );
            }
        }
        if watermarks.is_empty() {
            return Ok(None);
        }
        let schema_string = schema_json::to_json(&with_watermarks(&schema, &watermarks)?);
        Ok(Some(Metadata { schema_string, ..metadata.clone() }))
    }
}

/// The newest version, if there is a table.
pub(super) async fn find(log: &LogSource, latest: Option<&Snapshot>) -> Result<Option<Snapshot>> {
    match latest {
        Some(latest) => match latest.refresh().await {
            Ok(snapshot) => Ok(Some(snapshot)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        },
        None => Snapshot::find(log).await,
    }
}

/// Refuses options for new tables that contradict the existing table.
fn check_existing(shape: &TableShape, options: &WriteOptions) -> Result<()> {
    let (schema, partitions) = (&shape.schema, &shape.partition_columns);
    // Compared in the schema's spelling, which new tables get as well.
    let is_same = |columns: &&Vec<String>| {
        let spelled = columns.iter().map(|name| schema.field(name).map_or(name, |field| &field.name));
        spelled.eq(partitions)
    };
    if let Some(columns) = options.partition_by.as_ref().filter(|columns| !is_same(columns)) {
        let (is, given) = (partitions.join(", "), columns.join(", "));
        let otherwise = match options.mode {
            Mode::Overwrite => {
                "pass schema_mode=\"overwrite\" (in Spark, the option overwriteSchema), by which the table gets this \
                 partitioning"
            }
            Mode::Append | Mode::Error | Mode::Ignore => "write to another table",
        };
        let message =
            format!("the table is partitioned by [{is}], not by [{given}]; leave partition_by out, or {otherwise}");
        return Err(Error::invalid(message));
    }
    if !options.properties.is_empty() || options.name.is_some() || options.description.is_some() {
        return Err(Error::invalid(
            "properties, name and description are for a new table, and there is one already; leave them out, or change \
             the table with `set_properties`, `set_name` or `set_description`",
        ));
    }
    Ok(())
}

/// The rules that the engine that has these rows must evaluate.
fn external_rules(shape: &TableShape, rules: &WriteRules, rows: &Schema) -> Result<ExternalRules> {
    let given: Vec<&str> = rows.fields().iter().map(|field| field.name().as_str()).collect();
    Rules::external(&shape.schema, &rules.constraints, rules.now, &given)
}

/// An error of SQL that deltic cannot read, with what the caller can do.
fn with_advice(error: Error, shape: &TableShape, spec: &WriteSpec, rows: &Schema) -> Error {
    let external = spec.rules.as_ref().and_then(|rules| external_rules(shape, rules, rows).ok()).unwrap_or_default();
    let refusals = external.conditions.iter().map(|of| &of.refusal);
    let mut refusals = refusals.chain(external.columns.iter().filter_map(|of| of.refusal.as_ref()));
    match error.kind() {
        kind @ Kind::Invalid if refusals.any(|of| of.message == error.message()) => {
            // The message may end with the place in the SQL, on lines of their own.
            let (message, place) =
                error.message().split_at(error.message().find('\n').unwrap_or(error.message().len()));
            Error::new(kind.clone(), format!("{message}; {ENGINE_ADVICE}{place}"))
        }
        _ => error,
    }
}

/// Checks the columns of rows without any row, so that errors occur before a file is written.
fn check_columns(shape: &TableShape, spec: &WriteSpec, (rows, replaces_all_rows): (&Schema, bool)) -> Result<()> {
    check_extensions(rows)?;
    check_mapped(&shape.schema, shape.mapping)?;
    let conformer = Conformer::new(&shape.schema, shape.mapping)?
        .with_partition_columns(&shape.partition_columns)
        .replacing_all_rows(replaces_all_rows);
    let mut none = Identities::new(spec.identities.clone()).fill(RecordBatch::new_empty(Arc::new(rows.clone())))?;
    let rules = RowRules::new(&shape.schema, spec.rules.as_ref(), &shape.partition_columns)?;
    if let Some(rules) = &rules {
        none = rules.fill(rules.with_external_columns(none)?, 0)?.rows;
    }
    conformer.conform(&none).map(drop)
}

/// How files are written for a table with these columns and properties.
///
/// # Errors
/// `Corrupt` for a property that cannot be read, `Invalid` for an option.
pub(super) fn write_spec(shape: &TableShape, metadata: &Metadata, options: &FileOptions) -> Result<WriteSpec> {
    let properties = Properties::of(metadata);
    let mut spec = WriteSpec::new(shape.schema.clone(), shape.partition_columns.clone());
    spec.rules = None;
    shape.mapping.as_str().clone_into(&mut spec.column_mapping);
    spec.indexed_columns = IndexedColumns::of(properties)?;
    spec.string_prefix_length = properties.string_prefix_length()?;
    spec.compression = match (&options.compression, properties.get("delta.parquet.compression.codec")) {
        (Some(codec), _) => Compression::parse(codec)?,
        (None, Some(codec)) => Compression::parse(codec)?,
        (None, None) => Compression::default(),
    };
    spec.compression_level = options.compression_level;
    spec.column_options.clone_from(&options.column_options);
    spec.sort_by.clone_from(&options.sort_by);
    spec.page_version = properties.page_version()?;
    spec.random_prefix_length = properties.random_prefix_length()?;
    spec.max_rows_per_file = options.max_rows_per_file;
    writer::check_memory_limit(options.memory_limit)?;
    spec.memory_limit = options.memory_limit;
    if let Some(rows) = options.row_group_rows {
        spec.max_rows_per_group = usize::try_from(rows).unwrap_or(usize::MAX);
    }
    if let Some(size) = options.target_file_size.or(properties.target_file_size()?) {
        spec.target_file_size = size;
    }
    Ok(spec)
}
